use base64::engine::general_purpose::STANDARD as CODER;
use netbox_config::TenantLimits;

use super::*;
use crate::capture::tests::world::World;
use crate::quota::Bound;

fn proof(values: &[&str]) -> Option<Proof> {
    Proof::of_fields(values.iter().map(|value| value.as_bytes()))
}

#[test]
fn a_token_is_128_random_bits_that_are_known_by_their_hash() {
    let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
    assert_ne!(one.reveal(), other.reveal());
    let digits = one.reveal().strip_prefix(Token::PREFIX).unwrap();
    assert!(digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(Proof::of(one.reveal().as_bytes()).0, one.hash());
    assert_ne!(one.hash(), other.hash());
}

#[test]
fn a_token_is_the_password_of_whatever_user_or_stands_alone() {
    let token = Some(Proof::of(b"token"));
    let basic = |text: &str| format!("Basic {}", CODER.encode(text));
    for value in [
        basic("netbox:token"),
        basic(":token"),
        basic("any one at all:token"),
        basic("netbox:token").replace("Basic ", "bAsIc   "),
        basic("netbox:token").trim_end_matches('=').to_owned(),
        format!("  {} ", basic("x:token")),
        "Bearer token".to_owned(),
        "BEARER  token ".to_owned(),
    ] {
        assert_eq!(proof(&[&value]), token, "{value}");
    }
    assert_eq!(proof(&[&basic("user:with:colons")]), Some(Proof::of(b"with:colons")));
}

#[test]
fn what_is_no_credential_proves_nothing() {
    let long = format!("Bearer {}", "x".repeat(LONGEST));
    for value in [
        "",
        " ",
        "Basic",
        "Bearer",
        "token",
        "Basic token",
        "Basic dG9rZW4=",
        "Basic dG9r ZW46eA==",
        "Basic !!!!",
        "Basic d",
        "Digest username=\"netbox\", response=\"token\"",
        "Negotiate token",
        "Basic\tbmV0Ym94OnRva2Vu",
        &long,
    ] {
        assert_ne!(proof(&[value]), Some(Proof::of(b"token")), "{value}");
    }
    assert_eq!(proof(&[]), None);
    assert_eq!(proof(&["Bearer token", "Bearer token"]), None, "which of them would it be?");
    assert!(Proof::of_fields(std::iter::once(&b"Basic \xff\xfe"[..])).is_none());
    assert!(Proof::of_fields(std::iter::once(&b"Bearer \xff\xfe"[..])) != Some(Proof::of(b"token")));
}

fn role(name: &str, tokens: &[&str], world: &World) -> Role {
    let tokens = tokens.iter().map(|token| TokenHash::of(token.as_bytes())).collect();
    Role { name: name.into(), tokens, session: Arc::clone(&world.session) }
}

/// What carries clients of no role, where none comes.
fn nobody() -> Arc<Session> {
    World::new(&[]).session
}

fn enter(door: &TenantDoor, token: &str) -> Option<Bearer> {
    door.admit(Some(Proof::of(token.as_bytes())), None, || None).ok()
}

#[tokio::test]
async fn a_token_is_that_of_one_role() {
    let (ci, dev) = (World::new(&[]), World::new(&[]));
    let roles = Arc::new(Roles::new(vec![role("ci", &["one", "two"], &ci), role("dev", &["three"], &dev)], nobody()));
    let door = TenantDoor { roles: Arc::clone(&roles), only: None };
    for (token, world) in [("one", &ci), ("two", &ci), ("three", &dev)] {
        assert!(Arc::ptr_eq(&enter(&door, token).unwrap().session, &world.session), "{token}");
    }
    for token in ["", "ci", "on", "onee", "ONE", &TokenHash::of(b"one").to_string()] {
        assert!(enter(&door, token).is_none(), "{token}");
    }
    assert!(matches!(door.admit(None, None, || None), Err(TurnedAway::Unproved)));
    let of_dev = TenantDoor { roles, only: Some("dev".into()) };
    assert!(enter(&of_dev, "one").is_none() && enter(&of_dev, "three").is_some());
}

#[tokio::test]
async fn who_stays_the_same_keeps_the_connection() {
    let (ci, dev) = (World::new(&[]), World::new(&[]));
    let roles = vec![role("ci", &["one", "two"], &ci), role("dev", &["three"], &dev)];
    let door = TenantDoor { roles: Arc::new(Roles::new(roles, nobody())), only: None };
    let first = enter(&door, "one").unwrap();
    let again = |token: &str| door.admit(Some(Proof::of(token.as_bytes())), Some(&first), || None).ok().unwrap();
    assert!(Arc::ptr_eq(&again("one").flow, &first.flow));
    for other in ["two", "three"] {
        assert!(!Arc::ptr_eq(&again(other).flow, &first.flow), "{other}");
    }
    first.flow.revoke();
    assert!(!Arc::ptr_eq(&again("one").flow, &first.flow));
}

#[tokio::test]
async fn a_role_has_as_many_connections_as_it_may_have() {
    let ci = World::new(&[]).limits(|limits| limits.connections = 2);
    let door = TenantDoor { roles: Arc::new(Roles::new(vec![role("ci", &["one"], &ci)], nobody())), only: None };
    let held = [enter(&door, "one").unwrap(), enter(&door, "one").unwrap()];
    assert!(matches!(door.admit(Some(Proof::of(b"one")), None, || None), Err(TurnedAway::Full(_))));
    drop(held);
    assert!(enter(&door, "one").is_some());
}

#[tokio::test]
async fn one_client_leaves_room_for_the_others_of_its_role() {
    let ci = World::new(&[]).limits(|limits| limits.connections = 4);
    let door = TenantDoor { roles: Arc::new(Roles::new(vec![role("ci", &["one"], &ci)], nobody())), only: None };
    let enter = |client: &str| door.admit(Some(Proof::of(b"one")), None, || client.parse().ok());
    let held = [enter("203.0.113.7").ok().unwrap(), enter("203.0.113.7").ok().unwrap()];
    assert!(matches!(enter("203.0.113.7"), Err(TurnedAway::Full(_))));
    assert_eq!(ci.session.quota().reached(Bound::OneClient), 1);
    assert!(enter("203.0.113.8").is_ok());
    // One connection goes on with one place, whatever it asks for.
    let again = door.admit(Some(Proof::of(b"one")), Some(&held[0]), || "203.0.113.7".parse().ok());
    assert!(Arc::ptr_eq(&again.ok().unwrap().flow, &held[0].flow));
    drop(held);
    assert!(enter("203.0.113.7").is_ok());
    ci.session.quota().set(&TenantLimits { connections_per_client: Some(1), ..TenantLimits::default() });
    let _one = enter("127.0.0.1").ok().unwrap();
    assert!(enter("127.0.0.1").is_err(), "what is set is for every address");
}

#[tokio::test]
async fn what_was_opened_with_a_token_that_is_gone_is_ended() {
    let (ci, dev) = (World::new(&[]), World::new(&[]));
    let roles = Arc::new(Roles::new(vec![role("ci", &["one", "two"], &ci), role("dev", &["three"], &dev)], nobody()));
    let door = TenantDoor { roles: Arc::clone(&roles), only: None };
    let [one, two, three] = ["one", "two", "three"].map(|token| enter(&door, token).unwrap());
    // One is taken away, and another moves to the other role.
    assert_eq!(roles.replace(vec![role("ci", &["two"], &ci), role("dev", &[], &dev)]), 2);
    assert_eq!([&one, &two, &three].map(|bearer| bearer.flow.is_revoked()), [true, false, true]);
    assert!(enter(&door, "one").is_none() && enter(&door, "two").is_some());
    assert_eq!(roles.replace(vec![role("dev", &["two"], &dev)]), 1);
    assert!(two.flow.is_revoked(), "the token is another role's now");
}

#[tokio::test]
async fn a_listener_asks_for_a_token_where_one_could_be_proved() {
    let (ci, guests, open) = (World::new(&[]), World::new(&[]), World::new(&[]));
    let roles = vec![role("ci", &[], &ci), role("guests", &[], &guests)];
    let roles = Arc::new(Roles::new(roles, Arc::clone(&open.session)));
    let door = |only: Option<&str>| TenantDoor { roles: Arc::clone(&roles), only: only.map(Arc::from) };
    let anybody = |only| door(only).admit(None, None, || None).ok();
    for (only, world) in [(None, &open), (Some("ci"), &ci), (Some("guests"), &guests)] {
        assert!(!door(only).asks());
        assert!(Arc::ptr_eq(&anybody(only).unwrap().session, &world.session), "{only:?}");
    }
    // A token that is not asked for says nothing.
    assert!(Arc::ptr_eq(&enter(&door(Some("guests")), "one").unwrap().session, &guests.session));
    let [of_open, of_ci, of_guests] = [None, Some("ci"), Some("guests")].map(|only| anybody(only).unwrap());
    assert_eq!(roles.replace(vec![role("ci", &["one"], &ci), role("guests", &[], &guests)]), 2);
    assert_eq!([&of_open, &of_ci, &of_guests].map(|bearer| bearer.flow.is_revoked()), [true, true, false]);
    assert!(anybody(None).is_none() && anybody(Some("ci")).is_none() && anybody(Some("guests")).is_some());
    assert!(door(None).asks() && door(Some("ci")).asks() && !door(Some("guests")).asks());
    // A role that is gone has no clients, whoever still comes in by its listener.
    assert_eq!(roles.replace(vec![role("ci", &["one"], &ci)]), 1);
    assert!(of_guests.flow.is_revoked());
    assert!(door(Some("guests")).asks() && anybody(Some("guests")).is_none());
    assert!(enter(&door(Some("guests")), "one").is_none());
}
