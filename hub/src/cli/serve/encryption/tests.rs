use karmada_apiserver::limits::Limits;
use karmada_client::Rest;
use karmada_store::{Key, OpenError, engine::Redb};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;
use crate::engine::{
    backup::{self, Kept},
    embedded::Embedded,
};

/// As it stands in an object, and in a Work that carries the object.
const PASSWORD: &str = "aHVudGVyMiBvZiB0aGUgc2hvcA==";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// A machine under load is slow.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the file is looked at here.
const EVERY: Duration = Duration::from_millis(20);

fn config(providers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, \
         works.work.karmada.io]\n  providers: [{providers}]\n"
    )
}

fn aes(name: &str, letter: char) -> String {
    // 32 bytes.
    let secret = format!("{}=", letter.to_string().repeat(42) + "A");
    format!("{{aesgcm: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
}

/// A hub's API over a data directory and a file of keys.
struct World {
    dir: tempfile::TempDir,
}

struct Running {
    embedded: Embedded,
    rest: Rest,
    encryption: Arc<Encryption>,
    written: Arc<Mutex<String>>,
    stop: CancellationToken,
}

impl World {
    fn new(text: &str) -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        world.say(text);
        fs::create_dir_all(world.data().join("pki")).unwrap();
        world
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("keys.yaml")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn say(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
        fs::set_permissions(self.file(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    async fn start(&self) -> Result<Running, OpenError> {
        let (env, stop) = (Env::system(), CancellationToken::new());
        let mut keeper = Keeper::open(Some(&self.file()), &self.data()).map_err(|_| "a file").unwrap();
        keeper.every = EVERY;
        let (encryption, written) = (keeper.encryption(), keeper.written.clone());
        let engine = Redb::open(self.data())?;
        let embedded =
            Embedded::start_sealed(engine, encryption.clone(), &env, Limits::default(), stop.clone()).await?;
        tokio::spawn(keeper.keep(embedded.store().clone(), env, stop.clone()));
        let rest = Rest::new(embedded.client());
        Ok(Running { embedded, rest, encryption, written, stop })
    }

    /// The files of the data directory that have a text.
    fn found(&self, text: &str) -> Vec<String> {
        found(&self.data(), text)
    }
}

fn found(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file()
            && fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

impl Running {
    async fn settled(&self) {
        let settled = async {
            while self.encryption.is_due(&self.written.lock()) {
                sleep(EVERY).await;
            }
        };
        timeout(LIMIT, settled).await.expect("the store is written anew");
    }

    /// Waits for the file to be in force.
    async fn writes_with(&self, name: &str) {
        let follows = async {
            while !self.encryption.writing().iter().any(|key| key.contains(name)) {
                sleep(EVERY).await;
            }
        };
        timeout(LIMIT, follows).await.expect("the file is followed");
        self.settled().await;
    }

    async fn secret(&self, name: &str) -> Value {
        self.rest.get(&format!("{SECRETS}/{name}")).await.expect("the Secret")
    }

    async fn stop(self) {
        self.stop.cancel();
        self.embedded.close().await.unwrap();
    }
}

/// Secrets and a Work that carries one, of which some change and go.
async fn fill(running: &Running) {
    let secret = |name: &str, note: u32| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": {"n": note.to_string()}},
               "data": {"password": PASSWORD}})
    };
    for name in ["a", "b", "c"] {
        running.rest.post(SECRETS, &secret(name, 0)).await.expect("created");
    }
    for n in 1..4 {
        running.rest.put(&format!("{SECRETS}/a"), &secret("a", n)).await.expect("changed");
    }
    let gone = Key::new("core/secrets", "default", "c");
    let last = running.embedded.store().get(&gone).unwrap().value.get();
    let delete = karmada_store::Op::delete(gone, karmada_store::Expect::Any, last);
    running.embedded.store().commit(vec![delete]).await.unwrap();
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w"},
        "spec": {"workload": {"manifests": [secret("a", 0)]}}});
    running
        .rest
        .post("/apis/work.karmada.io/v1alpha1/namespaces/karmada-cluster/works", &work)
        .await
        .expect("a Work");
}

#[tokio::test]
async fn secrets_are_encrypted_rotated_and_decrypted_again() {
    let world = World::new(&config("{identity: {}}"));
    let running = world.start().await.unwrap();
    fill(&running).await;
    assert_eq!(world.found(PASSWORD), ["store.journal"], "the search finds what is there");
    let version = running.secret("a").await["metadata"]["resourceVersion"].clone();

    // On, while the hub runs.
    world.say(&config(&format!("{}, {{identity: {{}}}}", aes("key1", 'B'))));
    running.writes_with("key1").await;
    assert_eq!(world.found(PASSWORD), [""; 0]);
    let secret = running.secret("a").await;
    assert_eq!(secret["data"]["password"], PASSWORD);
    assert_eq!(secret["metadata"]["resourceVersion"], version, "nobody who watches hears of it");
    // `kubectl get secrets -o json | kubectl replace -f -` is no harm.
    running.rest.put(&format!("{SECRETS}/a"), &secret).await.expect("replaced");
    running.stop().await;
    assert_eq!(world.found(PASSWORD), [""; 0], "after a clean end, in the tables");

    // Another key, while it does not run; first without the old one, which is told by object and key.
    world.say(&config(&aes("key2", 'C')));
    let error = world.start().await.map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Sealed { .. }), "{text}");
    assert!(text.contains("core/secrets default/a is encrypted with key \"key1\" (aesgcm "), "{text}");
    assert!(text.contains("add it there") && text.contains("more values"), "{text}");
    let both = |first: &str, then: &str| config(&format!("{first}, {then}"));
    world.say(&both(&aes("key2", 'C'), &aes("key1", 'B')));
    let running = world.start().await.unwrap();
    running.settled().await;
    assert_eq!(running.encryption.keys().len(), 1, "nothing of key1 is left");

    // The old key goes, the hub is started again, and what changed before all this can still be watched.
    world.say(&config(&aes("key2", 'C')));
    running.writes_with("key2").await;
    running.stop().await;
    let running = world.start().await.unwrap();
    let store = running.embedded.store();
    let from = store.compacted("core/secrets");
    let mut watch = store.watch(karmada_store::Scope::resource("core/secrets"), from).unwrap();
    let mut told = 0;
    while let Some(event) = watch.try_next().unwrap() {
        told += usize::from(
            event.entry.value.get().windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes()),
        );
    }
    assert!(told >= 7, "{told}");
    drop(watch);

    // Off.
    world.say(&both("{identity: {}}", &aes("key2", 'C')));
    let off = async {
        while !running.encryption.writing().is_empty() {
            sleep(EVERY).await;
        }
    };
    timeout(LIMIT, off).await.unwrap();
    running.settled().await;
    running.stop().await;
    assert_eq!(world.found(PASSWORD), ["store.redb"]);
    let embedded = Embedded::at_rest(Redb::open(world.data()).unwrap(), keys(None).unwrap(), &Env::system());
    let rest = Rest::new(embedded.unwrap().client());
    let secret: Value = rest.get(&format!("{SECRETS}/b")).await.unwrap();
    assert_eq!(secret["data"]["password"], PASSWORD, "without any file");
}

#[tokio::test]
async fn a_bad_file_changes_nothing() {
    let world = World::new(&config(&aes("key1", 'B')));
    let running = world.start().await.unwrap();
    fill(&running).await;
    for text in ["", "kind: [", &config(&aes("key2", 'C')), &config("{aescbc: {keys: []}}")] {
        world.say(text);
        sleep(EVERY * 20).await;
        assert!(running.encryption.writing()[0].contains("key1"), "{text}");
    }
    running.stop().await;
    assert_eq!(world.found(PASSWORD), [""; 0]);
    let refused = Keeper::open(Some(&world.file()), &world.data()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, Failure::Usage(why) if why.contains("--encryption-provider-config") && why.contains("aescbc")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_backup_says_whether_it_holds_the_key() {
    let world = World::new(&config(&aes("key1", 'B')));
    let running = world.start().await.unwrap();
    fill(&running).await;
    let to = world.dir.path().join("hub.backup");
    let back_up = |copy| backup::write(&to, &world.data(), copy, &Env::system()).unwrap().kept;
    let kept = back_up(running.embedded.store().copy());
    let has = |text: &str| fs::read(&to).unwrap().windows(text.len()).any(|part| part == text.as_bytes());
    assert!(!has(PASSWORD));
    assert!(
        kept.to_string().contains("values are encrypted with key \"key1\" (aesgcm ")
            && kept.to_string().ends_with("which is not in it: keep that elsewhere"),
        "{kept}"
    );

    // It is restored, and opens with the key.
    let new = world.dir.path().join("new");
    backup::restore(&to, &new, &Env::system()).unwrap();
    assert_eq!(found(&new, PASSWORD), [""; 0]);
    let open = |file: Option<&Path>| {
        Embedded::at_rest(Redb::open(&new).unwrap(), keys(file).unwrap(), &Env::system())
            .map(|e| Rest::new(e.client()))
    };
    assert!(matches!(open(None), Err(OpenError::Sealed { .. })));
    let secret: Value = open(Some(&world.file())).unwrap().get(&format!("{SECRETS}/a")).await.unwrap();
    assert_eq!(secret["data"]["password"], PASSWORD);

    fs::copy(world.file(), world.data().join("pki/keys.yaml")).unwrap();
    let kept = back_up(running.embedded.store().copy());
    assert!(
        kept.to_string().ends_with("which is in it (pki/keys.yaml): whoever has it can read them"),
        "{kept}"
    );
    running.stop().await;
    let plain = Kept { plain_secrets: 2, ..Kept::default() };
    assert_eq!(plain.to_string(), "2 Secrets are not encrypted: whoever has it can read them");
}

#[test]
fn where_the_file_lies_is_remarked_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("pki")).unwrap();
    for (place, mode, want) in [
        ("keys.yaml", 0o600, vec![]),
        ("keys.yaml", 0o644, vec!["mode 644"]),
        ("data/keys.yaml", 0o600, vec!["whoever has that has the key"]),
        ("data/pki/keys.yaml", 0o600, vec!["backups hold it, too"]),
    ] {
        let file = dir.path().join(place);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let remarks = remarks(&file, &data);
        assert_eq!(remarks.len(), want.len(), "{place}: {remarks:?}");
        assert!(remarks.iter().zip(want).all(|(got, want)| got.contains(want)), "{place}: {remarks:?}");
    }
}

/// Creations of Secrets of 1 KB by 64 clients in this process, durable, in turns without and with encryption.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, to be read with --nocapture"]
async fn what_it_costs() {
    const CLIENTS: usize = 64;
    const EACH: usize = 40;
    for round in 0..3 {
        for (name, text) in [("plain", config("{identity: {}}")), ("aesgcm", config(&aes("key1", 'B')))] {
            let world = World::new(&text);
            let running = world.start().await.unwrap();
            let begun = Env::system();
            let from = begun.now();
            let clients = (0..CLIENTS).map(|client| {
                let rest = running.rest.clone();
                tokio::spawn(async move {
                    for i in 0..EACH {
                        let secret = json!({"apiVersion": "v1", "kind": "Secret",
                            "metadata": {"name": format!("s-{client}-{i}")}, "stringData": {"text": "x".repeat(1000)}});
                        rest.post(SECRETS, &secret).await.expect("created");
                    }
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
            let took = (begun.now() - from).as_secs_f64();
            println!("round {round}, {name}: {:.0} creates/s", (CLIENTS * EACH) as f64 / took);
            running.stop().await;
        }
    }
}
