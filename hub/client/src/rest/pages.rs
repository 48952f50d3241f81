//! A list, page by page.
//!
//! ```text
//!   ?limit=N ─▶ a page, and where it ends ─▶ ?limit=N&continue=… ─▶ … ─▶ one that ends nowhere
//!                    │ too large: fewer at a time      │ 410: told, or from the beginning
//! ```
//!
//! A server that goes on for ever is not followed for ever: so many pages are, and so many bytes as may be kept of it, unless
//! nothing is.

use bytes::Bytes;
use http::Method;
use karmada_meta::text;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Error, Rest, path::query_value};

/// So many pages are asked for: of a hundred objects each, those of a million.
const MOST: usize = 10_000;

/// Where so many objects are too much for one answer, this part of them.
const SMALLER: usize = 5;

/// Some objects of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// The list's kind.
    pub kind: String,
    /// The list's resourceVersion.
    pub revision: String,
    /// Nothing comes before them. It is also said where the list has begun anew: what came before is of another one.
    pub is_first: bool,
    /// The objects.
    pub items: Vec<T>,
}

#[derive(Deserialize)]
struct PageIn<T> {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: MetaIn,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaIn {
    resource_version: String,
    #[serde(rename = "continue")]
    token: Option<String>,
}

/// See the module. Made by [`Rest::pages`].
#[derive(Debug)]
pub struct Pages<'a> {
    rest: &'a Rest,
    path: String,
    accept: &'static str,
    size: usize,
    token: String,
    /// Whether a list of which the server has lost the rest is begun anew.
    again: bool,
    is_looked_at: bool,
    is_list: bool,
    is_kept: bool,
    is_first: bool,
    is_over: bool,
    asked: usize,
    bytes: usize,
}

impl Rest {
    /// The list at a path (with its selectors), so many objects at a time.
    pub fn pages(&self, path: impl Into<String>, size: usize) -> Pages<'_> {
        Pages {
            rest: self,
            path: path.into(),
            accept: "application/json",
            size: size.max(1),
            token: String::new(),
            again: false,
            is_looked_at: false,
            is_list: false,
            is_kept: true,
            is_first: true,
            is_over: false,
            asked: 0,
            bytes: 0,
        }
    }
}

impl Pages<'_> {
    /// In this media type.
    #[must_use]
    pub fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    /// Goes on where another was broken off, by its [`Pages::token`].
    #[must_use]
    pub fn after(self, token: impl Into<String>) -> Self {
        let token = token.into();
        Self { is_first: token.is_empty(), token, ..self }
    }

    /// Begins anew where the server does not have the rest any more (410), which is an error without this.
    #[must_use]
    pub fn or_anew(self) -> Self {
        Self { again: true, ..self }
    }

    /// Also of objects that would take much more than their length: whoever reads them asks of each first
    /// ([`Rest::not_too_dense`]).
    #[must_use]
    pub fn each_looked_at(self) -> Self {
        Self { is_looked_at: true, ..self }
    }

    /// However long all pages are together: whoever reads them keeps nothing of one when the next comes.
    #[must_use]
    pub fn passing(self) -> Self {
        Self { is_kept: false, ..self }
    }

    /// Nothing but lists by their kind: for whom an empty one is reason to remove something. Whatever else has no items either.
    #[must_use]
    pub fn lists_alone(self) -> Self {
        Self { is_list: true, ..self }
    }

    /// Where the last page ended; empty before the first and after the last.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The next page; none after the last. Of one that failed it can be asked once more.
    ///
    /// # Errors
    /// The server has not answered with a page, or there are more than are asked for.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Page<T>>, Error> {
        match self.answer().await? {
            Some((path, answer)) => self.read(&path, &answer).map(Some),
            None => Ok(None),
        }
    }

    /// The next page, whose objects are handed over one by one as they were sent. Whether there was one.
    ///
    /// # Errors
    /// Those of [`Pages::next`], and why an object cannot be read.
    pub async fn each(
        &mut self,
        mut object: impl FnMut(&str) -> Result<(), serde_json::Error>,
    ) -> Result<bool, Error> {
        let Some((path, answer)) = self.answer().await? else { return Ok(false) };
        let page = self.read::<&RawValue>(&path, &answer)?;
        let read = page.items.into_iter().try_for_each(|item| object(item.get()));
        read.map(|()| true).map_err(|error| wrong(&path, error.to_string()))
    }

    /// What is answered for the next page, and to what.
    async fn answer(&mut self) -> Result<Option<(String, Bytes)>, Error> {
        while !self.is_over {
            let path = self.page();
            if self.asked == MOST {
                return Err(wrong(&path, format!("the list goes on after {MOST} pages")));
            }
            self.asked += 1;
            let answer = match self.is_looked_at {
                true => self.rest.get_page(&path, self.accept).await,
                false => self.rest.get_bytes(&path, self.accept).await,
            };
            let answer = match answer {
                Err(error) if error.is_too_much() && self.size > 1 => {
                    self.size = (self.size / SMALLER).max(1);
                    continue;
                }
                Err(error) if error.is_gone() && self.again && !self.token.is_empty() => {
                    (self.is_first, self.bytes) = (true, 0);
                    self.token.clear();
                    continue;
                }
                answer => answer?,
            };
            let limit = self.rest.bounds().kept;
            self.bytes += answer.len();
            if self.is_kept && self.bytes > limit {
                return Err(Error::TooLarge { method: Method::GET, path, limit });
            }
            return Ok(Some((path, answer)));
        }
        Ok(None)
    }

    fn read<'a, T: Deserialize<'a>>(&mut self, path: &str, answer: &'a [u8]) -> Result<Page<T>, Error> {
        let page: PageIn<T> =
            serde_json::from_slice(answer).map_err(|error| wrong(path, error.to_string()))?;
        if self.is_list && !page.kind.ends_with("List") {
            let kind = text::line(&page.kind, 64);
            return Err(wrong(path, format!("its kind is {kind:?}, which is no list")));
        }
        self.token = page.metadata.token.unwrap_or_default();
        self.is_over = self.token.is_empty();
        let is_first = std::mem::take(&mut self.is_first);
        let (revision, items) = (page.metadata.resource_version, page.items.unwrap_or_default());
        Ok(Page { kind: page.kind, revision, is_first, items })
    }

    fn page(&self) -> String {
        let and = if self.path.contains('?') { '&' } else { '?' };
        let Self { path, size, token, .. } = self;
        match token.as_str() {
            "" => format!("{path}{and}limit={size}"),
            token => format!("{path}{and}limit={size}&continue={}", query_value(token)),
        }
    }
}

fn wrong(path: &str, cause: String) -> Error {
    Error::Answer { method: Method::GET, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::rest::Bounds;

    /// What a server does at a question: how many there have been, the limit, and where it goes on.
    type Does = fn(usize, usize, usize) -> (u16, Value);

    /// A server, and what it was asked.
    fn server(does: Does) -> (Rest, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let of = |name: &str| {
                let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
                value.map_or(0, |value| value.parse::<usize>().expect("a number"))
            };
            let (limit, from) = (of("limit"), of("continue"));
            let mut seen = seen.lock();
            seen.push(query);
            let (code, answer) = does(seen.len(), limit, from);
            let answer = Response::builder()
                .status(StatusCode::from_u16(code).expect("a code"))
                .body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(answer)
        });
        (Rest::new(kube::Client::new(service, "default")), asked)
    }

    /// A page of a list of so many numbers.
    fn page(all: usize, limit: usize, from: usize) -> (u16, Value) {
        let until = (from + limit).min(all);
        let token = if until < all { until.to_string() } else { String::new() };
        let items: Vec<usize> = (from..until).collect();
        let metadata = json!({"resourceVersion": "7", "continue": token});
        (200, json!({"kind": "List", "metadata": metadata, "items": items}))
    }

    fn gone() -> (u16, Value) {
        (
            410,
            json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410}),
        )
    }

    async fn all(pages: &mut Pages<'_>) -> Result<Vec<usize>, Error> {
        let mut all = Vec::new();
        while let Some(page) = pages.next::<usize>().await? {
            if page.is_first {
                all.clear();
            }
            assert_eq!((page.kind.as_str(), page.revision.as_str()), ("List", "7"));
            all.extend(page.items);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn pages_follow_one_another_to_the_end() {
        let (rest, asked) = server(|_, limit, from| page(25, limit, from));
        let mut pages = rest.pages("/apis/x?labelSelector=a", 10);
        assert_eq!(all(&mut pages).await.unwrap(), (0..25).collect::<Vec<_>>());
        assert!(pages.next::<usize>().await.unwrap().is_none(), "it is over");
        let wanted = ["", "&continue=10", "&continue=20"];
        assert_eq!(*asked.lock(), wanted.map(|rest| format!("labelSelector=a&limit=10{rest}")));
    }

    #[tokio::test]
    async fn objects_are_handed_over_as_they_were_sent() {
        let (rest, _) = server(|_, limit, from| page(25, limit, from));
        let (mut pages, mut sent) = (rest.pages("/x", 10), String::new());
        let mut take = |object: &str| -> Result<(), serde_json::Error> {
            sent.push_str(object);
            Ok(())
        };
        while pages.each(&mut take).await.unwrap() {}
        assert_eq!(sent, (0..25).map(|number| number.to_string()).collect::<String>());
        let unread = |object: &str| serde_json::from_str::<bool>(object).map(drop);
        let error = rest.pages("/x", 10).each(unread).await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error}");
    }

    #[tokio::test]
    async fn what_is_broken_off_goes_on_where_it_was() {
        let (rest, _) = server(|asked, limit, from| match asked {
            2 => (503, json!({"kind": "Status", "code": 503, "message": "later"})),
            _ => page(25, limit, from),
        });
        let mut pages = rest.pages("/x", 10);
        assert!(pages.next::<usize>().await.unwrap().is_some_and(|page| page.is_first));
        assert_eq!(pages.next::<usize>().await.unwrap_err().code(), Some(503));
        let mut others = rest.pages("/x", 10).after(pages.token());
        assert_eq!(all(&mut others).await.unwrap(), (10..25).collect::<Vec<_>>());
        assert_eq!(all(&mut pages).await.unwrap(), (10..25).collect::<Vec<_>>(), "itself, too");
    }

    #[tokio::test]
    async fn a_list_whose_rest_is_lost_is_told_or_begun_anew() {
        let does: Does = |asked, limit, from| if asked == 3 { gone() } else { page(25, limit, from) };
        let (rest, _) = server(does);
        assert!(all(&mut rest.pages("/x", 10)).await.unwrap_err().is_gone());
        let (rest, asked) = server(does);
        assert_eq!(all(&mut rest.pages("/x", 10).or_anew()).await.unwrap(), (0..25).collect::<Vec<_>>());
        assert_eq!(asked.lock().len(), 6);
        // A first page is never out of date; who says so is told.
        let (rest, _) = server(|_, _, _| gone());
        assert!(all(&mut rest.pages("/x", 10).or_anew()).await.unwrap_err().is_gone());
    }

    #[tokio::test]
    async fn what_is_no_list_is_not_an_empty_one() {
        for (answer, is_list) in [
            (json!({"kind": "ConfigMapList", "items": null}), true),
            (json!({"kind": "ConfigMapList", "items": []}), true),
            (json!({"kind": "PartialObjectMetadataList", "metadata": {}}), true),
            (json!({"kind": "Status", "status": "Success"}), false),
            (json!({"items": []}), false),
            (json!({}), false),
        ] {
            let text = answer.to_string();
            let service = tower::service_fn(move |_: Request<Body>| {
                std::future::ready(Ok::<_, std::io::Error>(Response::new(Body::from(
                    text.clone().into_bytes(),
                ))))
            });
            let rest = Rest::new(kube::Client::new(service, "default"));
            let page = rest.pages("/x", 10).lists_alone().next::<Value>().await;
            match is_list {
                true => assert!(page.unwrap().is_some_and(|page| page.items.is_empty()), "{answer}"),
                false => assert!(matches!(page, Err(Error::Answer { .. })), "{answer}"),
            }
        }
    }

    #[tokio::test]
    async fn large_pages_become_small_ones() {
        let (rest, asked) = server(|_, limit, from| page(1000, limit, from));
        let rest = rest.bounded(Bounds { answer: 700, ..Bounds::default() });
        assert_eq!(all(&mut rest.pages("/x", 500)).await.unwrap().len(), 1000);
        assert_eq!(asked.lock()[..3], ["limit=500", "limit=100", "limit=100&continue=100"]);
    }

    #[tokio::test]
    async fn nobody_is_followed_for_ever() {
        let (rest, asked) = server(|_, _, _| {
            (
                200,
                json!({"kind": "List", "metadata": {"resourceVersion": "7", "continue": "1"}, "items": [1]}),
            )
        });
        let error = all(&mut rest.pages("/x", 10)).await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error}");
        assert_eq!(asked.lock().len(), MOST);
        let rest = rest.bounded(Bounds { kept: 10_000, ..Bounds::default() });
        let error = all(&mut rest.pages("/x", 10)).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 10_000, .. }), "{error}");
        let error = all(&mut rest.pages("/x", 10).passing()).await.unwrap_err();
        assert!(
            matches!(error, Error::Answer { .. }),
            "where nothing is kept only pages are counted: {error}"
        );
        // Neither is one that loses the rest again and again.
        let (rest, asked) = server(|_, limit, from| if from == 0 { page(25, limit, from) } else { gone() });
        assert!(all(&mut rest.pages("/x", 10).or_anew()).await.is_err());
        assert_eq!(asked.lock().len(), MOST);
    }
}
