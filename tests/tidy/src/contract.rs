//! The wire contract as lines of text that a person can compare.

use std::fmt::Write as _;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

/// The file descriptor set that servers hand out by reflection.
///
/// # Panics
/// When the embedded descriptors cannot be decoded, which the build rules out.
#[must_use]
pub fn descriptors() -> FileDescriptorSet {
    FileDescriptorSet::decode(rdmesh_proto::FILE_DESCRIPTOR_SET).expect("descriptors decode")
}

/// One line for each message, field, enum value and call of rdmesh's packages,
/// in the order of the files.
#[must_use]
pub fn lines() -> String {
    let mut out = String::new();
    for file in descriptors().file {
        if !file.package().starts_with("rdmesh.") {
            continue;
        }
        let package = file.package().to_owned();
        for message in &file.message_type {
            message_lines(&mut out, &package, message);
        }
        for item in &file.enum_type {
            enum_lines(&mut out, &package, item);
        }
        for service in &file.service {
            service_lines(&mut out, &package, service);
        }
    }
    out
}

fn message_lines(out: &mut String, scope: &str, message: &DescriptorProto) {
    let name = format!("{scope}.{}", message.name());
    let _ = writeln!(out, "message {name}");
    for field in &message.field {
        let _ = writeln!(
            out,
            "  {} = {}: {}",
            field.name(),
            field.number(),
            kind(field)
        );
    }
    for nested in &message.nested_type {
        message_lines(out, &name, nested);
    }
    for nested in &message.enum_type {
        enum_lines(out, &name, nested);
    }
}

fn kind(field: &FieldDescriptorProto) -> String {
    let of = match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        other => other
            .as_str_name()
            .trim_start_matches("TYPE_")
            .to_lowercase(),
    };
    match field.label() {
        Label::Repeated => format!("repeated {of}"),
        _ if field.proto3_optional() => format!("optional {of}"),
        _ if field.oneof_index.is_some() => format!("oneof {of}"),
        _ => of,
    }
}

fn enum_lines(out: &mut String, scope: &str, item: &EnumDescriptorProto) {
    let _ = writeln!(out, "enum {scope}.{}", item.name());
    for value in &item.value {
        let _ = writeln!(out, "  {} = {}", value.name(), value.number());
    }
}

fn service_lines(out: &mut String, scope: &str, service: &ServiceDescriptorProto) {
    let _ = writeln!(out, "service {scope}.{}", service.name());
    for method in &service.method {
        let stream = |on: bool| if on { "stream " } else { "" };
        let _ = writeln!(
            out,
            "  {}({}{}) returns ({}{})",
            method.name(),
            stream(method.client_streaming()),
            method.input_type().trim_start_matches('.'),
            stream(method.server_streaming()),
            method.output_type().trim_start_matches('.'),
        );
    }
}
