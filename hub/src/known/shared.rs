//! What the hub's watches bring, for who works on members in the hub's own process: they open no watch of their own.

use karmada_client::watch::share::{News, Share};
use karmada_meta::object;
use karmada_objects::key::Key;
use serde_json::Value;

/// What is shared of which kinds.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    pub(crate) works: Share,
    pub(crate) clusters: Share,
    pub(crate) customizations: Share,
    pub(crate) webhooks: Share,
}

/// What is shared of one watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    share: Option<Share>,
    /// What has this label is nobody's business.
    but: Option<&'static str>,
}

impl Shared {
    /// All of it.
    pub(crate) fn by(share: &Share) -> Self {
        Self { share: Some(share.clone()), but: None }
    }

    /// The same without what has a label.
    pub(crate) fn but(self, label: &'static str) -> Self {
        Self { but: Some(label), ..self }
    }

    /// What is told of an object, if somebody listens.
    pub(super) fn news(&self, key: &Key, object: &Value, text: &str) -> Option<News> {
        let share = self.share.as_ref()?;
        if self.but.is_some_and(|label| object::label(object, label).is_some()) {
            return None;
        }
        let revision = object::resource_version(object).parse().ok();
        let is_heard = share.is_heard(&key.namespace, &key.name);
        is_heard.then(|| News { there: true, text: text.into(), revision })
    }

    pub(super) fn tell(&self, key: &Key, news: Option<News>, there: bool) {
        if let (Some(share), Some(news)) = (&self.share, news) {
            share.tell(&key.namespace, &key.name, &News { there, ..news });
        }
    }

    /// All has been listed: what was gone by then was not told.
    pub(super) fn listed(&self) {
        if let Some(share) = &self.share {
            share.anew();
        }
    }
}
