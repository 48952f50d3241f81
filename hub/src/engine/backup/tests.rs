use std::os::unix::fs::PermissionsExt as _;

use karmada_store::{Expect, Key, Op, Options, Store};

use super::*;

/// A data directory as a hub leaves it.
async fn data(dir: &Path) -> PathBuf {
    let data = dir.join("data");
    let store = Store::open(Redb::open(&data).unwrap(), (), Env::system(), Options::default()).unwrap();
    let put = |i: u32| Op::put(Key::new("works", "a", format!("w{i}")), Expect::Any, vec![i as u8; 500]);
    store.commit((0..300).map(put).collect()).await.unwrap();
    store.close().await.unwrap();
    fs::create_dir(data.join(KEYS)).unwrap();
    for (name, mode) in [("ca.pem", 0o600), ("ca.crt", 0o644)] {
        let path = data.join(KEYS).join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(data.join(KEYS).join("serving.pem.tmp"), "half").unwrap();
    data
}

fn back_up(data: &Path, to: &Path) -> Result<Whole, BackupError> {
    let copy = Copy::of_engine(&mut Redb::open(data).unwrap()).unwrap();
    write(to, data, copy, &Env::system())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_is_backed_up_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path()).await;
    let file = dir.path().join("hub.backup");
    fs::write(&file, "an older one").unwrap();
    let whole = back_up(&data, &file).unwrap();
    assert_eq!((whole.objects, mode(&file)), (300, 0o600));
    assert_eq!(names(dir.path()), ["data", "hub.backup"], "nothing is left beside it");

    let new = dir.path().join("deep/new");
    let restored = restore(&file, &new, &Env::system()).unwrap();
    assert_eq!((restored.objects, restored.revision), (300, whole.revision));
    assert_eq!(restored.about.program, env!("CARGO_PKG_VERSION"));
    assert_eq!(names(&new), ["pki", "store.lock", "store.redb"]);
    assert_eq!(names(&new.join(KEYS)), ["ca.crt", "ca.pem"]);
    assert_eq!(
        (mode(&new), mode(&new.join("pki/ca.pem")), mode(&new.join("pki/ca.crt"))),
        (0o700, 0o600, 0o644)
    );
    assert_eq!(mode(&new.join("store.redb")), 0o600);
    let store = Store::open(Redb::open(&new).unwrap(), (), Env::system(), Options::default()).unwrap();
    assert_eq!(store.get(&Key::new("works", "a", "w7")).unwrap().value, [7; 500].as_slice());
    store.close().await.unwrap();
}

#[tokio::test]
async fn only_an_empty_directory_is_restored_into() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path()).await;
    let file = dir.path().join("hub.backup");
    back_up(&data, &file).unwrap();
    let before = fs::read(data.join("store.redb")).unwrap();
    let error = restore(&file, &data, &Env::system()).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    assert!(error.to_string().ends_with("restore into an empty directory"), "{error}");
    assert_eq!(fs::read(data.join("store.redb")).unwrap(), before);
    // A volume that was just made is empty.
    let volume = dir.path().join("volume");
    fs::create_dir_all(volume.join(LOST_AND_FOUND)).unwrap();
    restore(&file, &volume, &Env::system()).unwrap();
}

#[tokio::test]
async fn a_restore_that_was_cut_off_is_not_taken_for_a_hub() {
    let dir = tempfile::tempdir().unwrap();
    let half = dir.path().join("half");
    fs::create_dir(&half).unwrap();
    fs::write(half.join(UNFINISHED), "").unwrap();
    let error = Redb::open(&half).unwrap_err();
    assert!(error.to_string().contains("did not come to its end"), "{error}");
    assert_eq!(names(&half), [UNFINISHED]);
}

#[tokio::test]
async fn a_damaged_backup_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path()).await;
    let file = dir.path().join("hub.backup");
    back_up(&data, &file).unwrap();
    let good = fs::read(&file).unwrap();
    let (new, bad) = (dir.path().join("new"), dir.path().join("bad"));
    let refused = |content: &[u8], what: &str| {
        fs::write(&bad, content).unwrap();
        let error = restore(&bad, &new, &Env::system()).map(|_| ()).expect_err(what);
        assert!(matches!(error, BackupError::Damaged { .. }), "{what}: {error}");
        assert!(!new.exists(), "{what}");
        error.to_string()
    };
    for cut in [0, 1, 19, 30, 200, good.len() / 2, good.len() - 33, good.len() - 32, good.len() - 1] {
        refused(&good[..cut], &format!("cut to {cut}"));
    }
    let luck = Env::system();
    let head = (0..400).chain((0..200).map(|_| luck.below(good.len() as u64) as usize));
    for place in head.chain(good.len() - 40..good.len()) {
        let mut content = good.clone();
        content[place] ^= 0x10;
        refused(&content, &format!("a bit at {place}"));
    }
    let mut longer = good.clone();
    longer.push(0);
    refused(&longer, "longer");
    let mut newer = good.clone();
    newer[MAGIC.len()] = 2;
    assert!(refused(&newer, "newer").ends_with("it has format 2, and this program reads formats up to 1"));
}

/// Whatever ends a backup early leaves what was there before, and nothing else.
#[tokio::test]
async fn half_a_backup_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path()).await;
    let file = dir.path().join("hub.backup");
    fs::write(&file, "an older one").unwrap();
    let mut writing = Writing::begin(&file, &data, &Env::system()).unwrap();
    let copy = Copy::of_engine(&mut Redb::open(&data).unwrap()).unwrap();
    let pieces: Vec<_> = copy.collect();
    writing.write(&pieces[0]).unwrap();
    assert_eq!(names(dir.path()).len(), 3);
    // The hub went away in the midst of it.
    assert!(matches!(writing.finish(), Err(BackupError::Damaged { .. })));
    assert_eq!(names(dir.path()), ["data", "hub.backup"]);
    assert_eq!(fs::read(&file).unwrap(), b"an older one");
    let nowhere = dir.path().join("none/hub.backup");
    assert!(matches!(back_up(&data, &nowhere), Err(BackupError::Io { .. })));
}
