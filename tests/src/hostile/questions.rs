//! Questions that are long to read: selectors, parameters of a query, media types. What is too much must be refused, and
//! what is not must not hold up others.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    attack::Scene,
    client::{Answer, Ask, Wire},
    ground::{MALLORY, works},
};

/// Of an answer to an attack hardly anything is kept.
const KEPT: usize = 256;
/// Bytes of what is far too much, little less than an address may have.
const LONG: usize = 60_000;
/// The same, so that it fits into what strangers may send.
const FITS: usize = 14_000;
/// Watches that are held open.
const WATCHES: usize = 300;

/// One question.
struct Question {
    query: String,
    accept: String,
}

impl Question {
    fn query(query: String) -> Self {
        Self { query, accept: "application/json".to_owned() }
    }

    fn accept(accept: &str, times: usize) -> Self {
        Self { query: "limit=1".to_owned(), accept: format!("{}application/json", accept.repeat(times)) }
    }
}

/// A selector by so many values of a label.
fn values(many: usize) -> String {
    let values: Vec<String> = (0..many).map(|n| format!("{n:05x}")).collect();
    format!("labelSelector=k+notin+({})", values.join(","))
}

/// More than may be asked, in so many bytes.
fn too_much(bytes: usize) -> Vec<Question> {
    let times = |text: &str| text.repeat(bytes / text.len());
    vec![
        Question::query(times("a&")),
        Question::query(times("%61=%62&")),
        Question::query(format!("fieldSelector={}", times("ab=,cd=,"))),
        Question::query(format!("labelSelector={}", times("!a,"))),
        Question::query(values(bytes / 6)),
        Question::accept("a/b;q=0.1,", bytes / 10),
        Question::accept("a/b;c=d;e=f,", bytes / 12),
    ]
}

/// As much as may be asked.
fn as_much() -> Vec<Question> {
    let terms = |term: &str, times: usize| vec![term; times].join(",");
    vec![
        Question::query("a=b&".repeat(256)),
        Question::query(format!("fieldSelector={}", terms("metadata.name!%3Dx", 128))),
        Question::query(format!("labelSelector={}", terms("!a", 128))),
        Question::query(values(2_000)),
        Question::accept("a/b;q=0.1;c=d;e=f,", 63),
    ]
}

/// By somebody without a certificate.
pub(super) async fn strangers(scene: Scene) {
    let questions: Arc<Vec<Question>> = Arc::new(too_much(FITS).into_iter().chain(as_much()).collect());
    let tally = scene.tally.clone();
    let once = move |wire: Wire, n: u64| {
        let (questions, tally) = (questions.clone(), tally.clone());
        async move {
            let question = &questions[n as usize % questions.len()];
            let path = format!("/api/v1/secrets?{}", question.query);
            let answer = wire.ask(Ask::get(&path).with("accept", &*question.accept).keep(KEPT)).await?;
            if answer.code < 400 {
                tally.wrong("Secrets were listed to nobody");
            }
            Ok(answer)
        }
    };
    let who = scene.people.stranger_from(3);
    scene.flood(&who, 4, 30, once).await;
}

/// By an agent, who also keeps watches open that ask such things of each object.
pub(super) async fn agent(scene: Scene) {
    let (long, good): (Arc<Vec<Question>>, Arc<Vec<Question>>) =
        (Arc::new(too_much(LONG)), Arc::new(as_much()));
    let (tally, held) = (scene.tally.clone(), Arc::new(Mutex::new(Vec::new())));
    let once = move |wire: Wire, n: u64| {
        let (long, good, tally, held) = (long.clone(), good.clone(), tally.clone(), held.clone());
        async move {
            let at = n as usize / 3;
            if n % 3 == 2 {
                let path = format!("{}?watch=true&{}", works(MALLORY), values(2_000));
                let watch = wire.open(Ask::get(&path)).await?;
                let code = watch.status().as_u16();
                let mut held = held.lock();
                if code == 200 && held.len() < WATCHES {
                    held.push(watch);
                }
                return Ok(Answer { code, body: Vec::new() });
            }
            let is_long = n.is_multiple_of(3);
            let question = if is_long { &long[at % long.len()] } else { &good[at % good.len()] };
            let path = format!("{}?{}", works(MALLORY), question.query);
            let answer = wire.ask(Ask::get(&path).with("accept", &*question.accept).keep(KEPT)).await?;
            if is_long && answer.code < 400 {
                tally.wrong(format!("{:.40}… was answered", question.query));
            }
            Ok(answer)
        }
    };
    scene.flood(&scene.people.mallory, 4, 30, once).await;
}
