"""Whether the packages that are found here are those that dpgt-node asks for."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement

DISTRIBUTION = "dpgt-node"


def outdated() -> list[str]:
    """One line for each package that is missing, or older than it must be; nothing where dpgt-node is not installed.

    Versions are those that Python finds first, PYTHONPATH included.  Extras are nobody's duty.
    """
    try:
        asked = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in asked:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            found.append(f"{requirement.name} is missing ({line} is needed)")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{requirement.name} is {version} here ({line} is needed)")
    return found
