//! How modes, rules and the host's answers show in names.

use super::bytes::*;
use super::*;

#[tokio::test]
async fn failures_of_the_host_keep_their_meaning() {
    let failed = || Err(LookupError::Failed("no server".to_owned()));
    let script = Script::addresses([
        ("none.github.com", Err(LookupError::NotFound)),
        ("empty.github.com", Err(LookupError::NoAddress)),
        ("odd.github.com", Ok(Vec::new())),
        ("broken.github.com", failed()),
    ]);
    let world = World::scripted(&["*.github.com"], script).await;
    for (asked, code) in [
        ("none.github.com", ResponseCode::NXDomain),
        ("empty.github.com", ResponseCode::NoError),
        ("odd.github.com", ResponseCode::NoError),
        ("broken.github.com", ResponseCode::ServFail),
    ] {
        for kind in [A, AAAA] {
            let answer = world.ask(&with_edns(query(asked, kind))).await;
            assert_eq!((answer.code(), answer.has_no_records()), (code, true), "{asked}");
        }
    }
    assert_eq!(world.ask(&with_edns(query("broken.github.com", A))).await.extended_error(), Some(23), "Network Error");
}

#[tokio::test]
async fn either_family_on_the_host_is_both_inside() {
    let v6 = "2001:db8::1".parse().unwrap();
    let script = Script::addresses([("v6.github.com", Ok(vec![v6])), ("v4.github.com", Ok(vec![PUBLIC.into()]))]);
    let world = World::scripted(&["*.github.com"], script).await;
    for asked in ["v6.github.com", "v4.github.com"] {
        let (v4, v6) = (world.ask(&query(asked, A)).await.v4(), world.ask(&query(asked, AAAA)).await.v6());
        assert_eq!((world.name_of(v4), world.name_of(v6)), (Some(asked.to_owned()), Some(asked.to_owned())));
    }
}

#[tokio::test]
async fn a_name_that_is_gone_from_the_host_is_gone_inside_too() {
    let world = World::scripted(&["github.com"], Script::addresses([("github.com", Err(LookupError::NotFound))])).await;
    world.names.synthetic.assign(&name("github.com"), true).unwrap();
    assert_eq!(world.ask(&query("github.com", A)).await.code(), ResponseCode::NXDomain);
}

#[tokio::test]
async fn mode_none_asks_for_nothing() {
    let world = World::new(policy(Mode::None, &[], &[]), Script::default(), &["corp.example"]).await;
    assert_eq!(world.ask(&query("github.com", A)).await.v4().octets()[1], 19);
    assert!(world.ask(&query("github.com", TXT)).await.is_empty());
    assert!(world.ask(&query("_mongodb._tcp.github.com", SRV)).await.is_empty());
    assert_eq!(world.ask(&query("x.corp.example", A)).await.code(), ResponseCode::NXDomain);
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn modes_open_and_audit_ask_for_all_that_is_not_denied() {
    for mode in [Mode::Open, Mode::Audit] {
        let world = World::new(policy(mode, &[], &["denied.example"]), Script::default(), &["corp.example"]).await;
        assert_eq!(world.ask(&query("a.example", A)).await.v4().octets()[1], 18);
        assert_eq!(world.ask(&query("x.corp.example", A)).await.v4().octets()[1], 18);
        assert_eq!(world.ask(&query("denied.example", A)).await.v4().octets()[1], 19);
        assert_eq!(world.asked(), ["a.example", "x.corp.example"]);
    }
}

#[tokio::test]
async fn a_denied_name_is_not_asked_for() {
    let policy = policy(Mode::Allowlist, &[".github.com"], &["secret.github.com"]);
    let world = World::new(policy, Script::default(), &[]).await;
    assert_eq!(world.ask(&query("secret.github.com", A)).await.v4().octets()[1], 19);
    for kind in [AAAA, TXT, MX, CNAME, HTTPS] {
        world.ask(&query("secret.github.com", kind)).await;
    }
    assert_eq!(world.asked(), [""; 0]);
    assert_eq!(world.ask(&query("public.github.com", A)).await.v4().octets()[1], 18);
    assert_eq!(world.asked(), ["public.github.com"]);
}

#[tokio::test]
async fn an_unlisted_name_below_a_search_domain_does_not_exist() {
    let policy = policy(Mode::Allowlist, &["github.com", "mirror.corp.example"], &[]);
    let world = World::new(policy, Script::default(), &["corp.example", "lab.example"]).await;
    for asked in ["github.com.corp.example", "x.lab.example", "X.LAB.example"] {
        for kind in [A, AAAA, TXT, HTTPS, SRV] {
            let answer = world.ask(&with_edns(query(asked, kind))).await;
            assert_eq!((answer.code(), answer.extended_error()), (ResponseCode::NXDomain, Some(15)), "{asked}");
        }
    }
    // The domain itself and what only ends alike are names like others; a listed one below is resolved.
    for asked in ["corp.example", "notcorp.example"] {
        assert_eq!(world.ask(&query(asked, A)).await.v4().octets()[1], 19);
    }
    assert_eq!(world.asked(), [""; 0]);
    assert_eq!(world.ask(&query("mirror.corp.example", A)).await.v4().octets()[1], 18);
    assert_eq!(world.asked(), ["mirror.corp.example"]);
}

#[tokio::test]
async fn refused_names_run_out_of_addresses_alone() {
    let world = World::allowing(&["github.com"]).await;
    for number in 0..crate::dns::synthetic::REFUSED_CAPACITY {
        assert!(world.names.synthetic.assign(&name(&format!("n{number}.evil.example")), false).is_some());
    }
    let answer = world.ask(&with_edns(query("one-more.evil.example", A))).await;
    assert_eq!((answer.code(), answer.extended_error()), (ResponseCode::ServFail, Some(0)));
    assert_eq!(world.ask(&query("github.com", A)).await.v4(), Ipv4Addr::new(198, 18, 1, 1));
    assert_eq!(world.asked(), ["github.com"]);
}

#[tokio::test]
async fn underscores_are_fine_in_a_name() {
    let world = World::allowing(&["_dmarc.example.com", "my_host.example.com"]).await;
    assert_eq!(world.ask(&query("my_host.example.com", A)).await.v4().octets()[1], 18);
    world.ask(&query("_dmarc.example.com", TXT)).await;
    assert_eq!(world.asked(), ["my_host.example.com", "_dmarc.example.com Txt"]);
}
