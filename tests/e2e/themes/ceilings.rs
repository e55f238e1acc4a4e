//! Ceilings and modes of outer files: what they leave out is reached by nothing that an inner file or a flag says.

use crate::programs::{CURL, PYTHON, curl, probe};
use crate::project::{Project, text};
use crate::tests;
use crate::world::World;
use crate::zone::METADATA;

tests![
    nothing_outside_a_ceiling_is_reached_in_any_mode needs [CURL],
    a_name_outside_a_ceiling_is_not_looked_up needs [PYTHON],
    another_name_in_the_bytes_has_to_be_inside_too needs [CURL],
    a_rule_outside_a_ceiling_opens_no_address needs [CURL],
    a_project_does_not_lift_the_mode_of_its_user needs [CURL],
    a_typed_mode_takes_the_place_of_the_users needs [CURL],
    a_project_that_only_narrows_needs_no_trust needs [CURL],
];

const MODES: [&str; 3] = ["allowlist", "audit", "open"];

/// A project that is trusted and allows much, under a ceiling of its user's.
fn under_ceiling<'w>(world: &'w World, ceiling: &str) -> Project<'w> {
    let allow = "allow = [\"*:*\", \"0.0.0.0/0:*\", \"169.254.169.254:80\"]\n";
    Project::trusted(world, allow).and_user(&format!("# the user's\nceiling = [{ceiling}]\n"))
}

/// Where that ceiling is.
fn place(project: &Project<'_>) -> String {
    format!("{}:2:1", text(&project.home.join(".config/netbox/config.toml")))
}

fn nothing_outside_a_ceiling_is_reached_in_any_mode(world: &World) {
    let [inside, outside] = ["ceiling-inside", "ceiling-outside"].map(|label| world.zone().host_v4(label));
    let project = under_ceiling(world, &format!("\"{}\"", inside.name));
    let urls = [inside.http("/"), outside.http("/"), format!("http://{}/", outside.v4())];
    let client = curl(&urls.each_ref().map(String::as_str));
    let mark = world.mark();
    project.bare().exec(&client).exits_with(0);
    world.assert_reached(mark, &inside);
    world.assert_reached(mark, &outside);
    for mode in MODES {
        let mark = world.mark();
        let flags = ["--mode", mode, "--allow", &outside.name, "--allow", &outside.v4().to_string()];
        let outcome = project.netbox(&flags).exec(&client);
        outcome.exits_with(0).says("hello").says(&format!("outside the ceiling of {}", place(&project)));
        if mode != "allowlist" {
            outcome.complains(&format!("warning: mode `{mode}`: ")).complains(" inside the ceilings");
        }
        outcome.complains(&format!("refused {}:80 (denied); by `ceiling` ({})", outside.name, place(&project)));
        world.assert_reached(mark, &inside);
        world.assert_untouched(mark, &outside);
        for host in [outside.name.clone(), outside.v4().to_string()] {
            let rule = &outcome.refused(&host, 80, "denied")["rule"];
            assert_eq!((rule["text"].as_str(), rule["source"].as_str()), (Some("ceiling"), Some(&*place(&project))));
        }
    }
}

fn a_name_outside_a_ceiling_is_not_looked_up(world: &World) {
    let host = world.zone().host("ceiling-lookup");
    let client = probe(world, &["lookup", &host.name]);
    let project = under_ceiling(world, "\"other.example.com\"");
    let mark = world.mark();
    project.bare().exec(&client).says(&format!("address: {}", host.v4()));
    assert!(!world.arrivals(mark, &host).is_empty(), "the bare lookup reaches the name server");
    for mode in MODES {
        let mark = world.mark();
        project.netbox(&["--mode", mode]).exec(&client).exits_with(0);
        world.assert_untouched(mark, &host);
    }
}

/// In audit mode another name than the one that was connected to passes; not so where it is outside.
fn another_name_in_the_bytes_has_to_be_inside_too(world: &World) {
    let [inside, outside] = ["ceiling-front", "ceiling-fronted"].map(|label| world.zone().host_v4(label));
    let (header, url) = (format!("Host: {}", outside.name), inside.http("/"));
    let client = curl(&["--header", &header, &url]);
    let project = Project::new(world);
    let outcome = project.netbox(&["--mode", "audit"]).exec(&client);
    outcome.exits_with(0).says("hello");
    let project = under_ceiling(world, &format!("\"{}\"", inside.name));
    let outcome = project.netbox(&["--mode", "audit"]).exec(&client);
    outcome.exits_with(0).does_not_say("hello").refused(&inside.name, 80, "denied");
}

fn a_rule_outside_a_ceiling_opens_no_address(world: &World) {
    let host = world.zone().host_at("ceiling-metadata", &[METADATA.into()]);
    let url = host.http("/latest/");
    let client = curl(&[&url]);
    for mode in MODES {
        let project = under_ceiling(world, "\"*\", \"169.254.169.254\"");
        let outcome = project.netbox(&["--mode", mode]).exec(&client);
        outcome.exits_with(0).says("hello");
        let project = under_ceiling(world, "\"*\"");
        let mark = world.mark();
        let outcome = project.netbox(&["--mode", mode]).exec(&client);
        outcome.exits_with(0).does_not_say("hello").refused(&host.name, 80, "denied");
        assert!(world.arrivals_at(mark, METADATA.into()).is_empty(), "it is not dialled: {outcome}");
    }
}

fn a_project_does_not_lift_the_mode_of_its_user(world: &World) {
    let host = world.zone().host_v4("ceiling-mode");
    let url = host.http("/");
    let client = curl(&[&url]);
    let lifting = "mode = \"open\"\nallow = [\"*\"]\n";
    Project::trusted(world, lifting).netbox(&[]).exec(&client).exits_with(0).says("hello");
    let project = Project::trusted(world, lifting).and_user("mode = \"none\"\n");
    let mark = world.mark();
    let outcome = project.netbox(&[]).exec(&client);
    outcome.exits_with(0).complains("mode `open` is wider than `none`").refused(&host.name, 80, "mode-none");
    world.assert_untouched(mark, &host);
}

fn a_typed_mode_takes_the_place_of_the_users(world: &World) {
    let host = world.zone().host_v4("ceiling-typed");
    let url = host.http("/");
    let client = curl(&[&url]);
    let project = Project::new(world).and_user("mode = \"none\"\n");
    project.netbox(&[]).exec(&client).exits_with(0).refused(&host.name, 80, "mode-none");
    let outcome = project.netbox(&["--mode", "allowlist", "--allow", &host.name]).exec(&client);
    outcome.exits_with(0).says("hello");
}

fn a_project_that_only_narrows_needs_no_trust(world: &World) {
    let [one, other] = ["narrow-one", "narrow-other"].map(|label| world.zone().host_v4(label));
    let user = format!("allow = [\"{}\", \"{}\"]\n", one.name, other.name);
    let urls = [one.http("/"), other.http("/")];
    let client = curl(&urls.each_ref().map(String::as_str));
    let narrowing = format!("allow = [\"{}:80\"]\ndeny = [\"{}\"]\n", one.name, other.name);
    let mark = world.mark();
    let outcome = Project::with(world, &narrowing).and_user(&user).netbox(&[]).exec(&client);
    outcome.exits_with(0).refused(&other.name, 80, "denied");
    world.assert_reached(mark, &one);
    world.assert_untouched(mark, &other);
    let widening = format!("allow = [\"{}:81\"]\n", one.name);
    Project::with(world, &widening).and_user(&user).netbox(&[]).exec(&client).exits_with(125);
}
