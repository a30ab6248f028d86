use std::fs;
use std::io::Write as _;

use super::*;
use crate::btf::{Kind, Writer};

const ARCHES: [&str; 2] = ["amd64", "arm64"];
const MODULES: [&str; 3] = ["ib_core", "ib_uverbs", "toy_ib"];

fn fixture(arch: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/select/fixtures")
        .join(arch)
}

fn source(directory: &Path) -> Source {
    Source {
        directory: directory.to_owned(),
        kernel: Some(fixture("amd64").join("vmlinux.btf")),
        driver: "toy_ib".to_owned(),
    }
}

fn rules() -> Rules {
    Rules::built_in().unwrap()
}

fn selected(arch: &str) -> Selection {
    let mut source = source(&fixture(arch));
    source.kernel = Some(fixture(arch).join("vmlinux.btf"));
    select(&source, &rules()).unwrap()
}

/// A directory with copies of the fixture's modules.
fn copy() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in MODULES {
        let file = format!("{name}.ko");
        fs::copy(fixture("amd64").join(&file), directory.path().join(&file)).unwrap();
    }
    directory
}

fn message(source: &Source) -> String {
    select(source, &rules()).unwrap_err().to_string()
}

#[test]
fn a_small_kernel_is_selected_from_on_both_processors() {
    insta::assert_snapshot!("amd64", selection_text(&selected("amd64"), true));
    insta::assert_snapshot!("arm64", selection_text(&selected("arm64"), true));
}

#[test]
fn indirect_calls_lead_to_the_operation_that_they_load_and_to_no_other() {
    for arch in ARCHES {
        let selection = selected(arch);
        let entry = |function: &str| {
            let found = selection.entries.iter().find(|e| e.function == function);
            found.unwrap().kept.clone()
        };
        assert_eq!(
            entry("ib_uverbs_modify_qp"),
            [
                "ib_uverbs_modify_qp",
                "ib_modify_qp_with_udata",
                "_ib_modify_qp",
                "toy_modify_qp",
                "toy_core_modify_qp",
                "mlx5_cmd_exec"
            ],
            "{arch}"
        );
        assert_eq!(
            entry("ib_uverbs_reg_mr"),
            ["ib_uverbs_reg_mr", "toy_reg_user_mr", "ib_umem_get"],
            "{arch}"
        );
        assert_eq!(selection.unresolved, Vec::<String>::new(), "{arch}");
    }
}

#[test]
fn the_json_comes_back_and_is_the_same_each_time() {
    let selection = selected("amd64");
    let text = serde_json::to_string(&selection).unwrap();
    let back: Selection = serde_json::from_str(&text).unwrap();
    assert_eq!(back, selection);
    assert_eq!(selected("amd64"), selection);
}

#[test]
fn packed_modules_are_unpacked() {
    let directory = copy();
    let at = |name: &str| directory.path().join(name);
    let plain = |name: &str| fs::read(fixture("amd64").join(name)).unwrap();
    for name in MODULES {
        fs::remove_file(at(&format!("{name}.ko"))).unwrap();
    }
    fs::copy(fixture("packed").join("ib_core.ko.xz"), at("ib_core.ko.xz")).unwrap();
    let zstd = zstd::encode_all(&plain("ib_uverbs.ko")[..], 3).unwrap();
    fs::write(at("ib_uverbs.ko.zst"), zstd).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain("toy_ib.ko")).unwrap();
    fs::write(at("toy_ib.ko.gz"), gzip.finish().unwrap()).unwrap();
    let selection = select(&source(directory.path()), &rules()).unwrap();
    assert_eq!(selection, selected("amd64"));

    // Each of them cut short: an error that names the file.
    for name in ["ib_core.ko.xz", "ib_uverbs.ko.zst", "toy_ib.ko.gz"] {
        let whole = fs::read(at(name)).unwrap();
        fs::write(at(name), &whole[..whole.len() / 2]).unwrap();
        let said = message(&source(directory.path()));
        assert!(
            said.contains(name) && said.contains("copy the file again"),
            "{said}"
        );
        fs::write(at(name), whole).unwrap();
    }
}

/// Reads and analyses with other bytes in the place of one module.
fn with_bytes(replaced: &str, bytes: &[u8], base: &Blob) -> Result<Selection, SelectError> {
    let kernel = fixture("amd64").join("vmlinux.btf");
    let mut modules = Vec::new();
    for name in MODULES {
        let path = fixture("amd64").join(format!("{name}.ko"));
        modules.push(if name == replaced {
            Module::parse(name, &path, bytes, base, &kernel)?
        } else {
            Module::read(name, &path, base, &kernel)?
        });
    }
    analyse(&modules, Vec::new(), base, &kernel, "toy_ib", &rules())
}

fn base() -> Blob {
    kernel_file::read(&fixture("amd64").join("vmlinux.btf")).unwrap()
}

#[test]
fn every_cut_of_a_module_is_an_error_that_names_it() {
    let base = base();
    for name in MODULES {
        let whole = fs::read(fixture("amd64").join(format!("{name}.ko"))).unwrap();
        for length in 0..whole.len() {
            // The section headers stand at the end: no cut is a whole module.
            let error = with_bytes(name, &whole[..length], &base).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(&format!("{name}.ko")), "{length}: {said}");
        }
    }
}

/// xorshift64*: the mutations are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % below
    }
}

#[test]
fn no_damage_to_a_module_makes_the_analysis_panic() {
    const SEED: u64 = 0x5eed_0004;
    const ROUNDS: usize = 4000;
    let base = base();
    let mut random = Random(SEED);
    let mut refused = 0;
    for round in 0..ROUNDS {
        let name = MODULES[random.next(MODULES.len())];
        let mut bytes = fs::read(fixture("amd64").join(format!("{name}.ko"))).unwrap();
        for _ in 0..=random.next(8) {
            let at = random.next(bytes.len());
            bytes[at] = u8::try_from(random.next(256)).unwrap();
        }
        if let Err(error) = with_bytes(name, &bytes, &base) {
            refused += 1;
            let said = error.to_string();
            assert!(said.contains(".ko"), "round {round}: {said}");
        }
    }
    // Both happen: damage that is seen, and damage in what does not matter.
    assert!(refused > 0 && refused < ROUNDS, "{refused} of {ROUNDS}");
}

#[test]
fn any_bytes_can_be_decoded_as_code() {
    let mut random = Random(0x5eed_0005);
    let section = module::Section {
        name: ".text".to_owned(),
        code: true,
        bytes: Vec::new(),
        relocations: BTreeMap::new(),
    };
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| u8::try_from(random.next(256)).unwrap())
            .collect();
        let x86 = code::decode_x86(&section, 1, 0, &bytes);
        assert!(x86.len() <= bytes.len());
        assert_eq!(code::decode_arm64(&section, 1, 0, &bytes).len(), 16);
    }
}

#[test]
fn what_is_no_module_is_named() {
    let directory = copy();
    let at = directory.path().join("toy_ib.ko");
    fs::write(&at, "not a module").unwrap();
    let said = message(&source(directory.path()));
    assert!(said.contains("toy_ib.ko: not an ELF file"), "{said}");
    // An ELF file that is none: this test itself.
    fs::copy(std::env::current_exe().unwrap(), &at).unwrap();
    let said = message(&source(directory.path()));
    assert!(said.contains("toy_ib.ko") && said.contains("not"), "{said}");
}

#[test]
fn modules_of_two_processors_do_not_mix() {
    let directory = copy();
    let foreign = fixture("arm64").join("toy_ib.ko");
    fs::copy(foreign, directory.path().join("toy_ib.ko")).unwrap();
    let said = message(&source(directory.path()));
    assert!(
        said.contains("arm64") && said.contains("give the directory of one kernel"),
        "{said}"
    );
}

#[test]
fn a_module_that_stands_twice_is_refused_and_an_update_replaces_it() {
    let directory = copy();
    let other = directory.path().join("kernel");
    fs::create_dir(&other).unwrap();
    fs::copy(fixture("amd64").join("toy_ib.ko"), other.join("toy-ib.ko")).unwrap();
    let said = message(&source(directory.path()));
    assert!(said.contains("the same module toy_ib"), "{said}");
    fs::rename(&other, directory.path().join("updates")).unwrap();
    fs::write(directory.path().join("toy_ib.ko"), "replaced").unwrap();
    assert_eq!(
        select(&source(directory.path()), &rules()).unwrap(),
        selected("amd64")
    );
}

#[test]
fn what_drives_no_rdma_device_is_no_driver() {
    let directory = copy();
    let mut wrong = source(directory.path());
    wrong.driver = "ib_core".to_owned();
    fs::remove_file(directory.path().join("toy_ib.ko")).unwrap();
    let said = message(&wrong);
    assert!(
        said.contains("ib_core.ko: ")
            && said.contains("it is no RDMA driver: name one with --driver"),
        "{said}"
    );
}

fn make_pipe(at: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
}

#[test]
fn what_is_no_file_is_no_kernel_and_no_earlier_selection() {
    let directory = copy();
    let pipe = directory.path().join("pipe");
    make_pipe(&pipe);
    for other in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
        let mut wrong = source(directory.path());
        wrong.kernel = Some(other.to_owned());
        let said = message(&wrong);
        assert_eq!(
            said,
            format!(
                "{}: not a file; name a kernel, a module or an output of `select -o json`",
                other.display()
            )
        );
    }
}

#[test]
fn what_would_have_to_be_waited_for_is_no_module() {
    let directory = copy();
    let at = directory.path().join("toy_ib.ko");
    fs::remove_file(&at).unwrap();
    make_pipe(&at);
    let said = message(&source(directory.path()));
    assert!(said.contains("no module toy_ib"), "{said}");
}

#[test]
fn what_is_missing_is_named_with_a_remedy() {
    let directory = copy();
    fs::remove_file(directory.path().join("toy_ib.ko")).unwrap();
    let said = message(&source(directory.path()));
    assert!(
        said.contains("no module toy_ib") && said.contains("--driver"),
        "{said}"
    );
    let whole = copy();
    let mut without = source(whole.path());
    without.kernel = None;
    assert!(message(&without).contains("name it with --kernel"));
    let empty = tempfile::tempdir().unwrap();
    assert!(message(&source(empty.path())).contains("holds no .ko"));
    assert!(message(&source(&empty.path().join("gone"))).contains("gone: "));
    let mut wrong = source(directory.path());
    wrong.kernel = Some(directory.path().join("ib_core.ko"));
    wrong.driver = "ib_core".to_owned();
    let said = message(&wrong);
    assert!(
        said.contains("ib_core.ko") && said.contains("--kernel"),
        "{said}"
    );
}

#[test]
fn the_types_of_another_kernel_are_refused() {
    // As many types and other strings: ids fit by chance, names do not.
    let mut other = Writer::default();
    for number in 0..60 {
        let name = other.string(format!("thing_{number}").as_bytes());
        other.add(name, Kind::Int, (0, false), 4, &[32]);
    }
    let directory = copy();
    let kernel = directory.path().join("other.btf");
    fs::write(&kernel, other.finish()).unwrap();
    let mut source = source(directory.path());
    source.kernel = Some(kernel);
    let said = message(&source);
    assert!(said.contains("does not continue that of"), "{said}");
    assert!(
        said.contains("name the right kernel with --kernel"),
        "{said}"
    );
}

#[test]
fn an_unknown_kind_of_type_is_named() {
    let base = base();
    let mut bytes = fs::read(fixture("amd64").join("toy_ib.ko")).unwrap();
    let magic = [0x9f, 0xeb, 1, 0];
    let btf = bytes.windows(4).position(|w| w == magic).unwrap();
    // The kind stands in the fourth byte of the second word of the first type.
    bytes[btf + 24 + 7] = 31;
    let said = with_bytes("toy_ib", &bytes, &base).unwrap_err().to_string();
    assert!(said.contains("toy_ib.ko: BTF: unknown kind 31"), "{said}");
}

#[test]
fn a_driver_without_btf_is_known_by_the_places_of_its_operations() {
    let base = base();
    let mut bytes = fs::read(fixture("amd64").join("toy_ib.ko")).unwrap();
    let name = bytes.windows(5).rposition(|w| w == b".BTF\0").unwrap();
    bytes[name..name + 4].copy_from_slice(b".xyz");
    let selection = with_bytes("toy_ib", &bytes, &base).unwrap();
    let with_btf = selected("amd64");
    let served = |selection: &Selection, how: How| -> Vec<String> {
        let driver = selection
            .hooks
            .iter()
            .filter(|h| h.hook.starts_with("driver."));
        let served = driver.filter(|h| h.how == how);
        served
            .map(|h| format!("{} {:?}", h.hook, h.functions))
            .collect()
    };
    assert_eq!(
        served(&selection, How::Kretprobe),
        served(&with_btf, How::Fexit)
    );
    assert!(served(&selection, How::Kretprobe).len() >= 5);
    let row = selection
        .functions
        .iter()
        .find(|r| r.function == "toy_create_qp");
    assert_eq!(row.unwrap().attach.why, "the module has no BTF");
    // The modules above it name the methods and the structs.
    let mut uverbs = fs::read(fixture("amd64").join("ib_uverbs.ko")).unwrap();
    let name = uverbs.windows(5).rposition(|w| w == b".BTF\0").unwrap();
    uverbs[name..name + 4].copy_from_slice(b".xyz");
    let error = with_bytes("ib_uverbs", &uverbs, &base).unwrap_err();
    assert!(
        error.to_string().contains("ib_uverbs.ko: no BTF"),
        "{error}"
    );
}

#[test]
fn a_name_that_stands_twice_in_a_module_cannot_be_hooked() {
    let base = base();
    let kernel = fixture("amd64").join("vmlinux.btf");
    let mut modules = Vec::new();
    for name in MODULES {
        let path = fixture("amd64").join(format!("{name}.ko"));
        modules.push(Module::read(name, &path, &base, &kernel).unwrap());
    }
    modules[2].repeated.insert("toy_modify_qp".to_owned());
    let found = analyse(&modules, Vec::new(), &base, &kernel, "toy_ib", &rules()).unwrap();
    let hook = found.hooks.iter().find(|h| h.hook == "driver.modify_qp");
    assert!(hook.unwrap().missing.contains("two functions of this name"));
    let difference = compare(&selected("amd64"), &found);
    assert_eq!(difference.worse.len(), 1);
    assert!(difference.worse[0].starts_with("driver.modify_qp: "));
    insta::assert_snapshot!("difference", difference_text(&difference));
    assert!(
        compare(&selected("amd64"), &selected("amd64"))
            .worse
            .is_empty()
    );
}

#[test]
fn a_difference_is_read_from_a_file_and_tells_by_the_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("old.json");
    let mut before = selected("amd64");
    for hook in before
        .hooks
        .iter_mut()
        .filter(|h| h.hook == "driver.create_ah")
    {
        hook.how = How::Fexit;
    }
    fs::write(&old, serde_json::to_string(&before).unwrap()).unwrap();
    let mut args = SelectArgs {
        directory: Some(fixture("amd64")),
        running: false,
        driver: "toy_ib".to_owned(),
        kernel: Some(fixture("amd64").join("vmlinux.btf")),
        diff: Some(old.clone()),
        all: false,
    };
    let outcome = run(&args, "", false).unwrap();
    assert!(
        outcome.worse && outcome.text.contains("driver.create_ah"),
        "{}",
        outcome.text
    );
    before.driver = "mlx5_ib".to_owned();
    fs::write(&old, serde_json::to_string(&before).unwrap()).unwrap();
    let said = run(&args, "", false).unwrap_err().to_string();
    assert!(
        said.contains("of mlx5_ib on amd64, this one of toy_ib on amd64"),
        "{said}"
    );
    fs::write(&old, "{}").unwrap();
    let said = run(&args, "", false).unwrap_err().to_string();
    assert!(
        said.contains("old.json: not the JSON of a selection"),
        "{said}"
    );
    args.diff = None;
    let outcome = run(&args, "", true).unwrap();
    let back: Selection = serde_json::from_str(&outcome.text).unwrap();
    assert_eq!(back, selected("amd64"));
}

#[test]
fn the_rules_that_are_compiled_in_are_sound() {
    let rules = rules();
    let catalogue = crate::catalogue::Catalogue::built_in().unwrap();
    let thirteen = |group: &str| rules.verbs.iter().filter(|v| v.group == group).count();
    assert_eq!(thirteen("thirteen"), 6);
    // Every operation of the catalogue belongs to a verb.
    for operation in catalogue.operations() {
        let known = rules
            .verbs
            .iter()
            .any(|v| v.operations.iter().any(|o| o == operation));
        assert!(known, "{operation}");
    }
    for verb in rules.verbs.iter().filter(|v| v.group == "none") {
        assert!(!verb.because.is_empty(), "{}", verb.name);
    }
    assert!(Rules::parse("nonsense").is_err());
}
