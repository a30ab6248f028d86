//! The wire contract changes only on purpose, and keeps its rules.

use std::collections::HashSet;

use rdmesh_tidy::contract;

#[test]
fn the_wire_contract_changes_only_on_purpose() {
    insta::assert_snapshot!("contract", contract::lines());
}

#[test]
fn packages_and_services_are_named_by_the_rule() {
    for file in contract::descriptors().file {
        if !file.package().starts_with("rdmesh.") {
            continue;
        }
        let words: Vec<&str> = file.package().split('.').collect();
        assert_eq!(words.len(), 3, "{} is not rdmesh.<area>.v1", file.package());
        assert_eq!(words[2], "v1", "{}", file.package());
        let folder = file.package().replace('.', "/");
        assert!(
            file.name().starts_with(&folder),
            "{} does not stand in {folder}",
            file.name()
        );
        for service in &file.service {
            assert!(service.name().ends_with("Service"), "{}", service.name());
        }
    }
}

#[test]
fn every_call_has_messages_of_its_own() {
    let mut seen = HashSet::new();
    for file in contract::descriptors().file {
        for service in &file.service {
            for method in &service.method {
                let input = method.input_type().to_owned();
                let output = method.output_type().to_owned();
                assert!(
                    input.ends_with(&format!("{}Request", method.name())),
                    "{input}"
                );
                assert!(
                    output.ends_with(&format!("{}Response", method.name())),
                    "{output}"
                );
                assert!(seen.insert(input.clone()), "{input} serves two calls");
                assert!(seen.insert(output.clone()), "{output} serves two calls");
            }
        }
    }
    assert!(!seen.is_empty());
}

#[test]
fn zero_of_every_enum_says_nothing() {
    let mut enums = 0;
    for file in contract::descriptors().file {
        if !file.package().starts_with("rdmesh.") {
            continue;
        }
        for item in &file.enum_type {
            let zero = item
                .value
                .iter()
                .find(|v| v.number() == 0)
                .expect("proto3 has a zero");
            assert!(zero.name().ends_with("_UNSPECIFIED"), "{}", zero.name());
            enums += 1;
        }
    }
    assert!(enums > 10);
}
