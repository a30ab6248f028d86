#!/usr/bin/env python3
"""Checks manifests against the schemas that Kubernetes publishes.

    check.py SCHEMAS FILE...

SCHEMAS is a directory of one version of Kubernetes (`v1.37.0-local-strict`, which refuses
unknown fields), as the package kubernetes-validate carries it. A document whose kind has no
schema is an error. Exit code 1 when something is wrong, with file, object, field and reason.
"""

import json
import pathlib
import re
import sys
import urllib.parse
import warnings

import jsonschema
import yaml

warnings.simplefilter("ignore", DeprecationWarning)


def schema_of(schemas, document):
    """The schema's path: apps/v1 Deployment is deployment-apps-v1.json."""
    version = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"])
    return schemas / f"{document['kind'].lower()}-{version}.json"


class Local(jsonschema.RefResolver):
    """Takes references to a neighbour from the same directory, whatever address a schema
    gives itself, and nothing from elsewhere."""

    def __init__(self, schemas, **rest):
        super().__init__(**rest)
        self.schemas = schemas

    def resolve_remote(self, uri):
        path = self.schemas / pathlib.PurePosixPath(urllib.parse.urlparse(uri).path).name
        self.store[uri] = json.loads(path.read_text())
        return self.store[uri]


def faults(schemas, document):
    """What is wrong with one object."""
    if not isinstance(document, dict) or not {"apiVersion", "kind"} <= document.keys():
        return ["no apiVersion or kind"]
    path = schema_of(schemas, document)
    if not path.exists():
        return [f"no schema for {document['apiVersion']} {document['kind']}"]
    schema = json.loads(path.read_text())
    resolver = Local(schemas, base_uri=path.as_uri(), referrer=schema)
    validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
    found = sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.path)))
    return [f"{'.'.join(map(str, error.path)) or '(top)'}: {error.message}" for error in found]


def main():
    schemas = pathlib.Path(sys.argv[1]).resolve()
    if not (schemas / "_definitions.json").exists():
        sys.exit(f"check.py: no schemas in {schemas}")
    checked = wrong = 0
    for name in sys.argv[2:]:
        documents = [each for each in yaml.safe_load_all(pathlib.Path(name).read_text()) if each]
        if not documents:
            print(f"{name}: no object in it")
            wrong += 1
        for document in documents:
            checked += 1
            for fault in faults(schemas, document):
                wrong += 1
                metadata = document.get("metadata", {}) if isinstance(document, dict) else {}
                print(f"{name}: {document.get('kind')} {metadata.get('name')}: {fault}")
    print(f"{checked} objects, {wrong} faults")
    sys.exit(1 if wrong else 0)


main()
