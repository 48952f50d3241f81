//! In whose name a request is made on the member.

use super::Refusal;

/// Whoever is in this group may do everything, whatever RBAC says.
const MASTERS: &str = "system:masters";
/// What every user has; a member gives them itself.
const EVERYBODYS: [&str; 2] = ["system:authenticated", "system:unauthenticated"];
/// As many groups as a request may bring.
const GROUPS: usize = 256;

/// A user of the hub, as the member is to see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Name.
    pub user: String,
    /// Groups, without those that everybody has.
    pub groups: Vec<String>,
}

impl Who {
    /// From the names and the groups that the hub has sent. `own`: the agent's own accounts on the member, in whose
    /// names nobody else acts who may not do everything anyway; `masters`: the member's owner has said that the group
    /// system:masters may be used.
    ///
    /// # Errors
    /// Where that is not one user, or one that the member is not to see.
    pub fn of(users: &[&str], groups: &[&str], own: &[&str], masters: bool) -> Result<Self, Refusal> {
        let [user] = users else {
            return Err(Refusal::Unclear(format!(
                "a request has one user, and this one has {}",
                users.len()
            )));
        };
        if groups.len() > GROUPS {
            return Err(Refusal::Unclear(format!("the user {user:?} has more than {GROUPS} groups")));
        }
        for (what, name) in [("user", user)].into_iter().chain(groups.iter().map(|group| ("group", group))) {
            // Space at an end is no part of a header's value: the member would read another name than was judged.
            if name.is_empty() || name.trim() != *name || name.chars().any(char::is_control) {
                return Err(Refusal::Unclear(format!("the {what} {name:?} cannot be sent in a header")));
            }
        }
        if !masters && groups.contains(&MASTERS) {
            return Err(Refusal::Forbidden(format!(
                "the member's owner lets nobody act as {MASTERS}, and {user:?} is in that group: bind the user to roles on \
                 the member, or start the agent with --tunnel-masters"
            )));
        }
        // Whoever may do everything anyway gains nothing by it.
        if own.contains(user) && !groups.contains(&MASTERS) {
            return Err(Refusal::Forbidden(format!(
                "{user:?} is an account of the agent's own on this member, in whose name nobody else acts"
            )));
        }
        let groups = groups.iter().filter(|group| !EVERYBODYS.contains(group));
        Ok(Self { user: (*user).to_owned(), groups: groups.map(|group| (*group).to_owned()).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "system:serviceaccount:karmada-system:karmada-agent";

    #[test]
    fn one_user_with_names_that_can_be_sent() {
        for (users, groups, want) in [
            (vec!["jane"], vec!["dev", "system:authenticated"], Ok(vec!["dev"])),
            (vec!["jane"], vec![], Ok(vec![])),
            (vec![], vec!["dev"], Err(400)),
            (vec!["jane", "joe"], vec![], Err(400)),
            (vec![""], vec![], Err(400)),
            (vec!["jane "], vec![], Err(400)),
            (vec!["jane"], vec!["\tdev"], Err(400)),
            (vec!["jane"], vec!["system:masters "], Err(400)),
            (vec!["ja\r\nne"], vec![], Err(400)),
            (vec!["jane"], vec!["dev", "system:masters"], Err(403)),
            (vec![OWN], vec![], Err(403)),
            (vec!["jane"], vec!["dev"; GROUPS + 1], Err(400)),
        ] {
            let who = Who::of(&users, &groups, &[OWN], false).map(|who| who.groups);
            let want = want.map(|groups| groups.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(who.map_err(|refusal| refusal.code()), want, "{users:?} {groups:?}");
        }
    }

    #[test]
    fn masters_only_where_the_owner_says_so() {
        let who = Who::of(&["admin"], &["system:masters"], &[OWN], true).unwrap();
        assert_eq!((who.user.as_str(), who.groups), ("admin", vec!["system:masters".to_owned()]));
        assert_eq!(Who::of(&[OWN], &["dev"], &[OWN], true).unwrap_err().code(), 403);
        assert!(Who::of(&[OWN], &["system:masters"], &[OWN], true).is_ok(), "nothing is gained by the name");
        assert_eq!(Who::of(&[OWN], &["system:masters"], &[OWN], false).unwrap_err().code(), 403);
    }
}
