"""
The bill of materials of a Bento and of its image, as CycloneDX: python -m deploy.supply.sbom --help

Python packages come from an environment in which the Bento's requirements are installed, crates from Cargo.lock,
pretrained models from requirements/models.toml, Debian packages from what dpkg-query says inside an image. Fails where
a licence is not allowed.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
from packageurl import PackageURL

from .crates import Crate, linked
from .licences import refused
from .models import Model, packed

__all__ = ["bill"]


def bill(python: Path, debian: str, distribution: str, name: str) -> Bom:
    """
    Everything that the service of that name is made of.

    python: of the environment.
    debian: a line for each package, with name, version and architecture between tabs.
    distribution: whose packages those are, as `debian-12` or `ubuntu-24.04`: their faults are told apart by that.
    """
    bom = _environment(python)
    (native,) = (component for component in bom.components if component.name == "kushi-native")
    native.purl = PackageURL("pypi", name=native.name, version=native.version)
    for component in bom.components:
        # home pages; and where a wheel lay on the machine that installed it
        component.external_references.clear()
    crates = [_crate(crate) for crate in linked()]
    bom.components.update(crates)
    bom.register_dependency(native, crates)
    bom.components.update(map(_model, packed()))
    packages = [_debian(distribution, *line.split("\t")) for line in debian.splitlines()]
    bom.components.update(packages)
    bom.metadata.component = Component(name=name, type=ComponentType.APPLICATION, bom_ref=name)
    needed = {one for dependency in bom.dependencies for one in dependency.dependencies_as_bom_refs()}
    bom.register_dependency(bom.metadata.component, [one for one in bom.components if one.bom_ref not in needed])
    return bom


def _environment(python: Path) -> Bom:
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--short-PURLs", "--no-validate", str(python)]
    return Bom.from_json(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def _crate(crate: Crate) -> Component:
    return Component(
        name=crate.name,
        version=crate.version,
        purl=PackageURL("cargo", name=crate.name, version=crate.version),
        bom_ref=f"crate {crate.name} {crate.version}",
        licenses=[LicenseExpression(crate.licence.replace("/", " OR "))],
    )


def _model(model: Model) -> Component:
    return Component(
        name=model.name,
        version=model.version,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        purl=PackageURL("pypi", name=model.package, version=model.version, subpath=model.file),
        bom_ref=f"model {model.name}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=model.sha256)],
        licenses=[LicenseExpression(model.licence)],
    )


def _debian(distribution: str, name: str, version: str, architecture: str) -> Component:
    qualifiers = {"arch": architecture, "distro": distribution}
    return Component(
        name=name,
        version=version,
        purl=PackageURL("deb", distribution.partition("-")[0], name, version, qualifiers),
        bom_ref=f"debian {name} {version} {architecture}",
    )


def _stated(component: Component) -> Iterator[str]:
    for one in component.licenses:
        yield one.value if isinstance(one, LicenseExpression) else one.id or one.name or "none"


def _checked(bom: Bom) -> list[str]:
    """Debian's packages say no licence that dpkg knows; their texts are in the image, in /usr/share/doc"""
    ours = [one for one in bom.components if one.purl is None or one.purl.type != "deb"]
    return refused((one.name, _stated(one)) for one in ours)


def main() -> int:
    """Writes the bill, which the schema allows"""
    parser = ArgumentParser(description="Writes the bill of materials of a Bento, and of its image, as CycloneDX.")
    parser.add_argument("--python", type=Path, required=True, help="of the environment of the Bento")
    parser.add_argument("--debian", type=Path, help=r"dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\n'")
    parser.add_argument("--distribution", default="debian", help="$ID-$VERSION_ID of its /etc/os-release")
    parser.add_argument("--name", default="kushi", help="of the Bento")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    packages = given.debian.read_text(encoding="utf-8") if given.debian else ""
    bom = bill(given.python, packages, given.distribution, given.name)
    if wrong := _checked(bom):
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6).validate_str(text):
        print(error, file=sys.stderr)
        return 1
    given.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
