use super::*;

#[tokio::test]
async fn bounds_hold_from_the_moment_that_they_are_set() {
    let quota = Quota::default();
    assert!(quota.has_room_beside(99, 100) && !quota.has_room_beside(100, 100));
    assert_eq!(
        (quota.half_open(7), quota.portion(1 << 20), quota.count(Direction::Received, 1 << 40)),
        (7, 1 << 20, None)
    );
    quota.set(&TenantLimits { connections: Some(2), half_open: Some(1), bandwidth: Some(4000), ..Default::default() });
    assert!(quota.has_room_beside(1, 100) && !quota.has_room_beside(2, 100));
    assert_eq!((quota.half_open(7), quota.portion(1 << 20)), (1, 1000));
    quota.set(&TenantLimits { bytes: Some(1 << 40), ..Default::default() });
    assert!(quota.is_used_up() && !quota.has_room_beside(0, 100));
    quota.set(&TenantLimits::default());
    assert!(!quota.is_used_up() && quota.has_room_beside(2, 100));
    let reached = Bound::ALL.map(|bound| quota.reached(bound));
    assert_eq!(reached, [2, 0, 0, 0, 0, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_sandboxes_of_a_user_share_its_bounds() {
    tokio::time::advance(Duration::from_secs(10)).await;
    let user = Arc::new(Quota::default());
    let [one, other] = [(); 2].map(|()| Quota::within(Arc::clone(&user)));
    let limits = TenantLimits {
        connections: Some(2),
        new_connections_per_second: Some(2),
        bandwidth: Some(4000),
        dns_queries_per_second: Some(2),
        ..Default::default()
    };
    user.set(&limits);
    one.enter();
    other.enter();
    assert!(!one.has_room_beside(1, 100) && !other.has_room_beside(1, 100));
    one.leave();
    assert!(other.has_room_beside(1, 100));
    assert_eq!((one.connected(), other.connected()), (None, None));
    assert_eq!(other.connected(), Some(Duration::from_millis(500)));
    assert!(one.may_ask() && other.may_ask() && !one.may_ask());
    assert_eq!((one.portion(1 << 20), one.count(Direction::Sent, 4000)), (1000, None));
    assert_eq!(other.count(Direction::Received, 2000), Some(Duration::from_millis(500)));
    user.set(&TenantLimits { bytes: Some(6000), ..limits });
    assert!(one.is_used_up() && other.is_used_up() && !one.has_room_beside(0, 100));
    let reached = |quota: &Quota| Bound::ALL.map(|bound| quota.reached_of_user(bound));
    assert_eq!((reached(&one), reached(&other)), ([1, 0, 0, 0, 0, 1, 1, 0], [1, 0, 0, 1, 1, 0, 0, 0]));
    assert!(Bound::ALL.iter().all(|bound| one.reached(*bound) + other.reached(*bound) == 0), "not their own");
    user.set(&TenantLimits::default());
    assert!(!one.is_used_up() && one.has_room_beside(5, 100) && one.connected().is_none());
}

#[test]
fn a_tenant_leaves_pipes_to_the_others() {
    let alone = Arc::new(Quota::default());
    let places: Vec<_> = (0..10).map_while(|_| alone.splice(2)).collect();
    assert_eq!(places.len(), 10, "nobody shares them");
    let room = crate::share::Room::of_process(1000);
    room.keep_some(true);
    let user = Arc::new(Quota::of(room.share(1)));
    let [one, other] = [(); 2].map(|()| Arc::new(Quota::within(Arc::clone(&user))));
    let place = one.splice(2);
    let more = other.splice(2);
    assert!(place.is_some() && more.is_some() && one.splice(2).is_none() && other.splice(2).is_none());
    drop(place);
    assert!(other.splice(2).is_some());
    let role = Arc::new(Quota::of(room.share(1)));
    assert!(role.splice(2).is_some(), "another tenant's");
}

#[test]
fn every_bound_has_its_place() {
    for (place, bound) in Bound::ALL.into_iter().enumerate() {
        assert_eq!(bound as usize, place);
    }
}
