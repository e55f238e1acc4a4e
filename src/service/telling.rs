//! How often what users do wrong at the control socket is said: anybody who may connect can do so without end, and what is
//! said ends up in a journal.

use std::collections::HashMap;
use std::time::Duration;

use netbox_proxy::budget::{Allowance, Budget};

/// For each user so many at once, and then one a second.
const OF_A_USER: Allowance = Allowance { most: 20, refill: Duration::from_secs(1) };

/// How many users are told apart. A user who may be others too (user_namespaces(7)) is no reason to remember all of them.
const MOST_USERS: usize = 1024;

/// What was said of whom.
#[derive(Default)]
pub struct TellingOfUsers {
    users: HashMap<u32, Telling>,
    /// Of all who are not told apart.
    others: Telling,
}

struct Telling {
    budget: Budget,
    untold: u64,
}

impl Default for Telling {
    fn default() -> Self {
        Self { budget: Budget::new(OF_A_USER), untold: 0 }
    }
}

impl TellingOfUsers {
    /// Whether this one is to be said; and if so, how many before it were not.
    pub fn tell(&mut self, uid: u32) -> Option<u64> {
        let has_room = self.users.len() < MOST_USERS || self.users.contains_key(&uid);
        let telling = if has_room { self.users.entry(uid).or_default() } else { &mut self.others };
        if telling.budget.take() {
            return Some(std::mem::take(&mut telling.untold));
        }
        telling.untold += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_is_told_of_so_often_and_holds_up_no_other() {
        let mut telling = TellingOfUsers::default();
        let told = (0..1000).filter_map(|_| telling.tell(1)).count();
        assert!((OF_A_USER.most as usize..100).contains(&told), "{told}");
        assert_eq!(telling.tell(2), Some(0));
        // Those that were not told are told of with the next one that is.
        let untold = telling.users[&1].untold;
        assert!(untold >= 900, "{untold}");
        telling.users.get_mut(&1).unwrap().budget = Budget::new(OF_A_USER);
        assert_eq!((telling.tell(1), telling.tell(1)), (Some(untold), Some(0)));
    }

    #[test]
    fn who_is_many_users_is_told_of_as_one() {
        let mut telling = TellingOfUsers::default();
        let users = u32::try_from(20 * MOST_USERS).unwrap();
        let told = (0..users).filter_map(|uid| telling.tell(uid)).count();
        assert!((MOST_USERS..2 * MOST_USERS).contains(&told), "{told}");
        assert_eq!(telling.users.len(), MOST_USERS);
    }
}
