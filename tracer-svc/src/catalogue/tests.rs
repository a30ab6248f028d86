use super::*;

#[test]
fn the_built_in_catalogue_has_the_thirteen_hooks() {
    let catalogue = Catalogue::built_in().unwrap();
    let thirteen = catalogue
        .hooks
        .iter()
        .filter(|h| h.group == Group::Thirteen);
    assert_eq!(thirteen.count(), 13);
}

#[test]
fn a_hook_that_cannot_be_found_is_refused() {
    let text = r#"
        not_drivers = []
        [[hook]]
        name = "x"
        group = "core"
        verb = "any"
        object = "other"
        layer = "core"
        depth = 10
    "#;
    let error = Catalogue::parse(text).unwrap_err().to_string();
    assert_eq!(
        error,
        "catalogue: hook x: has neither `places` nor `operation`"
    );
}

#[test]
fn the_dmabuf_question_of_nccl_is_expected() {
    let rules = ExpectedRules::built_in().unwrap();
    let rule = rules.find(Verb::RegDmabufMr, 9, Layer::Memory).unwrap();
    assert_eq!(rule.name, "dmabuf_probe");
    // A dmabuf that a driver with the operation refuses below itself is no question.
    assert!(rules.find(Verb::RegDmabufMr, 95, Layer::Firmware).is_none());
    assert!(rules.find(Verb::RegMr, 9, Layer::Uverbs).is_none());
}
