//! `netbox check`: would this be allowed, and by which rule. Nothing is looked up.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::tests;
use crate::world::World;

tests![
    an_allowed_target_gives_0 needs [],
    a_refused_target_gives_1 needs [],
    a_malformed_target_gives_2 needs [],
    the_worst_of_several_counts needs [],
    a_host_alone_is_judged_on_443 needs [],
    a_url_is_judged_on_its_port needs [],
    json_has_one_object_a_target needs [],
    no_name_is_looked_up needs [],
    a_bad_rule_gives_2 needs [],
    a_near_miss_is_told needs [],
    every_handed_case_holds needs [],
];

/// The shared cases of targets.
const CASES: &str = include_str!("../../cases/target.jsonl");

/// What `netbox check` takes, and a program's protocol does not: a URL, a host without a port.
const ONLY_FOR_CHECK: [&str; 3] = ["T059", "T105", "T194"];

fn check(world: &World, words: &[&str]) -> Outcome {
    world
        .netbox_words()
        .exec(&[&["check", "--allow", "listed.example.com", "--deny", "denied.example.com"], words].concat())
}

fn an_allowed_target_gives_0(world: &World) {
    check(world, &["listed.example.com:443"]).exits_with(0).says("listed.example.com");
}

fn a_refused_target_gives_1(world: &World) {
    check(world, &["unlisted.example.com:443"]).exits_with(1).says("not-listed");
    check(world, &["listed.example.com:22"]).exits_with(1).says("port-not-listed");
    check(world, &["denied.example.com"]).exits_with(1).says("denied");
    check(world, &["[2001:db8::1]:443"]).exits_with(1).says("address-not-listed");
}

fn a_malformed_target_gives_2(world: &World) {
    for target in ["bad..example.com", "listed.example.com:0", "listed.example.com:+443", "0x7f000001", "127.1", ""] {
        check(world, &[target]).exits_with(2);
    }
}

fn the_worst_of_several_counts(world: &World) {
    check(world, &["listed.example.com", "unlisted.example.com"]).exits_with(1);
    check(world, &["unlisted.example.com", "bad..example.com", "listed.example.com"]).exits_with(2);
}

fn a_host_alone_is_judged_on_443(world: &World) {
    let outcome = check(world, &["--json", "listed.example.com"]);
    assert_eq!(json(&outcome)[0]["port"], 443, "{outcome}");
}

fn a_url_is_judged_on_its_port(world: &World) {
    let outcome = check(world, &["--json", "http://listed.example.com/a?b", "https://listed.example.com:8443/"]);
    outcome.exits_with(1);
    let ports: Vec<_> = json(&outcome).iter().map(|object| object["port"].clone()).collect();
    assert_eq!(ports, [80, 8443], "{outcome}");
}

fn json(outcome: &Outcome) -> Vec<Value> {
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in `{line}`: {outcome}"));
    outcome.stdout().lines().map(parse).collect()
}

fn json_has_one_object_a_target(world: &World) {
    let targets = ["listed.example.com", "unlisted.example.com", "bad..example.com"];
    let outcome = check(world, &[&["--json"], &targets[..]].concat());
    outcome.exits_with(2);
    let objects = json(&outcome);
    assert_eq!(objects.len(), 3, "{outcome}");
    for (object, target) in objects.iter().zip(targets) {
        assert_eq!(object["target"], target, "{outcome}");
    }
    assert_eq!(objects[0]["verdict"], "allow", "{outcome}");
    assert_eq!(objects[0]["reason"], "listed", "{outcome}");
    assert_eq!(objects[0]["host"], "listed.example.com", "{outcome}");
    assert_eq!(objects[0]["rule"]["text"], "listed.example.com", "{outcome}");
    assert_eq!(objects[0]["rule"]["source"], "--allow", "{outcome}");
    assert_eq!(objects[1]["verdict"], "deny", "{outcome}");
    assert_eq!(objects[1]["reason"], "not-listed", "{outcome}");
    assert_eq!(objects[2]["verdict"], "error", "{outcome}");
    assert_eq!(objects[2]["reason"], "malformed", "{outcome}");
}

fn no_name_is_looked_up(world: &World) {
    let host = world.zone().host("check-lookup");
    let mark = world.mark();
    world
        .netbox_words()
        .exec(&["check", "--allow", &host.name, &host.name])
        .exits_with(0)
        .says("allow")
        .says(&host.name);
    world.assert_untouched(mark, &host);
}

fn a_bad_rule_gives_2(world: &World) {
    let outcome = world.netbox_words().exec(&["check", "--allow", "*.com", "listed.example.com"]);
    outcome.exits_with(2).complains("`*.com`");
}

/// Report 52: the apex was allowed, a name below it was meant, and nothing hinted at it.
fn a_near_miss_is_told(world: &World) {
    let outcome = world.netbox_words().exec(&[
        "check",
        "--allow",
        "*.github.com,allowed.example.com",
        "github.com",
        "api.allowed.example.com",
        "allowed.example.com:22",
        "unlike.example",
    ]);
    outcome.exits_with(1);
    let expected = "\
deny   github.com:443  not-listed  to allow it: --allow 'github.com'
       near: `*.github.com` (--allow) does not cover `github.com` itself; `.github.com` would
deny   api.allowed.example.com:443  not-listed  to allow it: --allow 'api.allowed.example.com'
       near: `allowed.example.com` (--allow) does not cover names below it, such as `api.allowed.example.com`
deny   allowed.example.com:22  port-not-listed  to allow it: --allow 'allowed.example.com:22'
       near: `allowed.example.com` (--allow) is for ports 80, 443, not for 22
deny   unlike.example:443  not-listed  to allow it: --allow 'unlike.example'
";
    assert_eq!(outcome.stdout(), expected, "{outcome}");
    let near = json(&check(world, &["--json", "a.listed.example.com", "unlike.example"]));
    assert_eq!(
        near[0]["near"],
        "`listed.example.com` (--allow) does not cover names below it, such as `a.listed.example.com`"
    );
    assert!(near[1]["near"].is_null(), "{near:?}");
}

/// Those that a command line can say, and that do not depend on what a name leads to or on whose the addresses are.
fn every_handed_case_holds(world: &World) {
    let all: Vec<Value> = CASES.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    let texts = |case: &Value, key: &str| -> Vec<String> {
        let list = case.get(key).and_then(Value::as_array);
        list.into_iter().flatten().map(|item| item.as_str().expect("a text").to_owned()).collect()
    };
    let is_here = |case: &&Value| {
        let input = case["input"].as_str();
        let is_of_addresses = case["expect"] == "deny" && case.get("resolve").is_some();
        let is_special = ONLY_FOR_CHECK.iter().any(|id| case["id"] == *id) || case.get("host_addresses").is_some();
        input.is_some_and(|input| !input.contains('\0')) && !is_of_addresses && !is_special
    };
    let mut by_policy: BTreeMap<Vec<String>, Vec<&Value>> = BTreeMap::new();
    for case in all.iter().filter(is_here) {
        by_policy.entry(texts(case, "policy")).or_default().push(case);
    }
    let (mut failures, mut driven) = (Vec::new(), 0);
    for (policy, cases) in by_policy {
        let inputs: Vec<_> = cases.iter().map(|case| case["input"].as_str().expect("a text")).collect();
        let rules = policy.iter().flat_map(|rule| ["--allow", rule]);
        let words: Vec<_> = ["check", "--no-config", "--json"].into_iter().chain(rules).chain(["--"]).collect();
        let outcome = world.netbox_words().exec(&[&words[..], &inputs].concat());
        let answers = json(&outcome);
        assert_eq!(answers.len(), cases.len(), "{outcome}");
        for (case, answer) in cases.iter().zip(answers) {
            let fine = case["expect"] == answer["verdict"]
                || texts(case, "also_ok").iter().any(|ok| answer["verdict"] == **ok);
            if !fine {
                failures.push(format!("{}: {answer}, not {}", case["id"], case["expect"]));
            }
            driven += 1;
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(driven >= 120, "{driven} cases");
    eprintln!("target.jsonl: {driven} of {} cases hold by `netbox check`", all.len());
}
