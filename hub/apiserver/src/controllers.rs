//! What the server does by itself: background controllers, each a client of the [`registry`](crate::registry) without HTTP.
//!
//! | module | what |
//! |---|---|
//! | `namespaces`, `roles` | make what every server has; `namespaces` also empties those that are deleted |
//! | `definitions` | gives CustomResourceDefinitions their names, and their objects an end |
//! | `gc` | deletes what has lost its owners |
//! | `events` | deletes Events that are old |
//! | `apiservices` | keeps one APIService for each group and version |
//! | `aggregate` | writes the rules of aggregated ClusterRoles |
//! | `fill_secrets` | puts tokens of service accounts into Secrets |
//! | `certificates`, `cluster_info` | approve and sign what machines ask for, and tell machines where to ask |
//!
//! They know each other by what is stored alone. No request waits for them.

pub(crate) mod aggregate;
pub(crate) mod apiservices;
pub(crate) mod certificates;
mod cluster_info;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod fill_secrets;
pub(crate) mod gc;
pub(crate) mod namespaces;
pub(crate) mod roles;
