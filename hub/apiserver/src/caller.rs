//! Who makes a request, and of which object.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use karmada_meta::status::Status;
use karmada_store::Key;
use parking_lot::Mutex;

use crate::{
    authz::{self, Attributes, Authorizer, ResourceTarget},
    body,
    identity::UserInfo,
    kinds::Kind,
    limits::{Gate, Guest, Seat},
    options::WriteOptions,
    pki::MASTERS,
    storage,
};

/// Copies for webhooks take one part in so many of what the object itself takes, all that becomes of it included.
const COPIES: usize = 2;

/// Who makes a request, and what the client is to be told beside the answer.
#[derive(Debug)]
pub struct Caller<'a> {
    /// Who.
    pub user: &'a UserInfo,
    /// The field manager when none is named: the User-Agent up to its first slash.
    pub agent: &'a str,
    /// Warnings for the client, in order.
    pub warnings: Mutex<Warnings>,
    /// See [`Caller::internal`].
    pub(crate) internal: bool,
    /// Who judges what it creates; nobody: it may.
    pub(crate) authorizer: Option<&'a dyn Authorizer>,
    /// Who has memory for it; nobody: there is enough.
    memory: Option<(&'a Gate, Guest)>,
    /// What it has of that.
    portions: Mutex<Option<Seat>>,
    /// Bytes of what there is to work on.
    weight: AtomicUsize,
    /// See [`Caller::weigh_copies`].
    copied: AtomicBool,
}

/// What a client is to be told, each text once. They go into headers, so they share the room that kube-apiserver gives
/// them; where that does not do, each is cut short, and the last ones are left out.
#[derive(Debug, Default)]
pub struct Warnings {
    texts: Vec<String>,
    seen: HashSet<String>,
    /// Characters of all texts.
    length: usize,
    cut: bool,
}

impl Warnings {
    /// Characters of all warnings together.
    const ROOM: usize = 4 * 1024;
    /// Characters of one where all are cut.
    const SHORT: usize = 256;

    fn add(&mut self, mut text: String) {
        if self.length >= Self::ROOM || !self.seen.insert(text.clone()) {
            return;
        }
        if !self.cut && self.length + text.chars().count() > Self::ROOM {
            self.cut = true;
            self.texts.iter_mut().for_each(shorten);
            self.length = self.texts.iter().map(|text| text.chars().count()).sum();
        }
        if self.cut {
            shorten(&mut text);
        }
        self.length += text.chars().count();
        self.texts.push(text);
    }
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(Warnings::SHORT) {
        text.truncate(end);
    }
}

impl std::ops::Deref for Warnings {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.texts
    }
}

impl<'a> Caller<'a> {
    /// A caller without warnings so far.
    pub fn new(user: &'a UserInfo, agent: &'a str) -> Self {
        Self {
            user,
            agent,
            warnings: Mutex::default(),
            internal: false,
            authorizer: None,
            memory: None,
            portions: Mutex::default(),
            weight: AtomicUsize::new(0),
            copied: AtomicBool::new(false),
        }
    }

    /// The same, who may create only what they are allowed to, however they go about it.
    #[must_use]
    pub fn judged_by(self, authorizer: &'a dyn Authorizer) -> Self {
        Self { authorizer: Some(authorizer), ..self }
    }

    /// The same, whose work on large objects takes memory of this guest's.
    #[must_use]
    pub(crate) fn counted_for(self, gate: &'a Gate, guest: Guest) -> Self {
        Self { memory: Some((gate, guest)), ..self }
    }

    /// Refuses the creation of an object that the caller may not create; without a name: of any. `asked` is the name that
    /// the path has, for which a right may be; that of a body is none to ask for.
    pub(crate) fn check_create(&self, target: &Target<'_>, asked: &str) -> Result<(), Status> {
        let Some(authorizer) = self.authorizer else { return Ok(()) };
        let attributes = |name| Attributes {
            user: self.user,
            verb: "create",
            target: authz::Target::Resource(ResourceTarget {
                group: &target.kind.gvr.group,
                resource: &target.kind.gvr.resource,
                namespace: target.namespace,
                name,
                ..ResourceTarget::default()
            }),
        };
        authz::check(authorizer, &attributes(asked))?;
        authz::check_name(authorizer, &attributes(target.name))
    }

    /// The server itself, for what it needs to start and to keep its own books. Webhooks are not asked.
    pub(crate) fn internal(user: &'a UserInfo, agent: &'a str) -> Self {
        Self { internal: true, ..Self::new(user, agent) }
    }

    /// Says how much there is to work on: bytes of a body, of what is to be changed by it, or of what it may grow to. Waits
    /// until there is memory for it.
    ///
    /// # Errors
    /// 429 when there is none in time.
    pub(crate) async fn weigh(&self, bytes: usize) -> Result<(), Status> {
        if self.weight.fetch_max(bytes, Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        self.take_portions().await
    }

    /// What is worked on is copied once more, as those see it who are asked about the write, and written out for each of them.
    ///
    /// # Errors
    /// As [`Caller::weigh`].
    pub(crate) async fn weigh_copies(&self) -> Result<(), Status> {
        if self.copied.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.take_portions().await
    }

    /// Memory for all that there is to work on now.
    async fn take_portions(&self) -> Result<(), Status> {
        let copies = if self.copied.load(Ordering::Relaxed) { self.weight() / COPIES } else { 0 };
        let bytes = self.weight() + copies;
        if let Some((gate, guest)) = &self.memory {
            // Given back before: whoever waits for more must not have what others wait for.
            drop(self.portions.lock().take());
            let portions = gate.memory(guest, bytes).await?;
            *self.portions.lock() = portions;
        }
        Ok(())
    }

    /// How much there is to work on, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// Adds a warning, once.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().add(text.into());
    }

    /// Refuses to store more than is stored of this caller's. What is there already may stay as large as it is.
    pub(crate) fn check_size(&self, value: &Bytes, before: usize) -> Result<(), Status> {
        let limit = if self.internal || self.user.in_group(MASTERS) { body::WHOLE } else { body::STORED };
        let size = value.len();
        if size <= limit.max(before.min(body::WHOLE)) {
            return Ok(());
        }
        Err(Status::too_large(format!("the object would have {size} bytes, and {limit} are stored of one")))
    }

    /// Whose fields it writes.
    pub(crate) fn manager<'b>(&'b self, options: &'b WriteOptions) -> &'b str {
        options.field_manager.as_deref().unwrap_or(self.agent)
    }
}

/// One object's place.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What it is, in the version of the request.
    pub kind: &'a Arc<Kind>,
    /// Namespace; empty at the cluster scope.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// `status`, `scale`, `finalize`, …; empty for the object itself.
    pub subresource: &'a str,
}

impl Target<'_> {
    /// Where it is stored.
    pub(crate) fn key(&self) -> Key {
        storage::key(self.kind, self.namespace, self.name)
    }

    /// 404 for this object.
    pub fn not_found(&self) -> Status {
        let mut resource = self.kind.group_resource();
        if &*self.kind.storage == "core/componentstatuses" {
            // The one resource that kube-apiserver names in the singular here.
            self.kind.singular.clone_into(&mut resource.resource);
        }
        Status::not_found(&resource, self.name)
    }
}
