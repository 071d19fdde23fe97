"""Launch scripts as bash reads them: the commands that they would start, in a jail where every
program only writes down its arguments.

The jail is a root of its own (user, mount and network namespace) with the system's libraries read
only and a temporary folder; it needs `unshare` and a kernel that allows user namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

# programs that scripts start, each of which writes its arguments down
RECORDED = (
    *("python", "python3", "torchrun", "deepspeed", "accelerate", "swift", "megatron", "trl"),
    *("llamafactory-cli", "axolotl", "tune", "litgpt", "composer", "oumi", "ray", "mpirun"),
    *("mpiexec", "aprun", "sbatch", "uv", "colossalai", "numactl"),
)
# what has no meaning here: they succeed in silence
_QUIET = (
    *("module", "conda", "pip", "git", "wget", "curl", "ssh", "nvidia-smi", "sleep", "docker"),
    *("scontrol", "scancel", "mamba", "huggingface-cli", "wandb", "hostname", "ulimit", "tee"),
)
_RECORD = """#!/bin/bash
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\1\\0'; } >> /out/commands
"""
_SRUN = """#!/bin/bash
while [[ $# -gt 0 ]]; do
  case $1 in
    bash|sh) exec /bin/bash "${@:2}";;
    python*|torchrun|deepspeed|accelerate|*/torchrun|*/python*) exec "${1##*/}" "${@:2}";;
  esac
  shift
done
"""
# files that are not there stop no script, nor do checks that end in `exit`
_BEFORE = """source() { [[ -f $1 ]] && builtin source "$@"; return 0; }
.() { source "$@"; }
cd() { builtin cd "$@" 2>/dev/null; return 0; }
exit() { :; }
pushd() { return 0; }
popd() { return 0; }
"""
_STOPS = re.compile(r"(?m)^[ \t]*set[ \t]+-.*$")
_TO_FILL = re.compile(r"=<[^<>\n]*>")  # NAME=<specify a path>, which bash cannot read
_SECONDS = 20
_SYSTEM = ("bin", "lib", "lib64", "usr")


def commands(script: str, arguments: tuple[str, ...] = ()) -> list[list[str]]:
    """The commands that a script starts, each as its words. Raises OSError without namespaces."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in (*_SYSTEM, "stubs", "out", "tmp", "dev", "proc", "root"):
            (root / name).mkdir()
        for name in RECORDED:
            _write(root / "stubs" / name, _RECORD)
        for name in _QUIET:
            _write(root / "stubs" / name, "#!/bin/bash\nexit 0\n")
        _write(root / "stubs" / "srun", _SRUN)
        text = _TO_FILL.sub("=TO_FILL", _STOPS.sub("set +e", script))
        _write(root / "script.sh", text)
        _write(root / "before.sh", _BEFORE)
        binds = "\n".join(f"mount --rbind -o ro /{name} {root}/{name}" for name in _SYSTEM)
        inside = (
            f"{binds}\nmount -t tmpfs none {root}/tmp\ntouch {root}/dev/null\n"
            f"mount --bind /dev/null {root}/dev/null\nmount -t proc proc {root}/proc\n"
            f"ln -s /proc/self/fd {root}/dev/fd\n"
            f"exec chroot {root} /usr/bin/env -i PATH=/stubs:/usr/bin:/bin HOME=/root USER=user"
            " BASH_ENV=/before.sh SLURM_PROCID=0 SLURM_NODEID=0"
            ' /bin/bash /script.sh "$@" </dev/null'
        )
        unshare = shutil.which("unshare")
        if unshare is None:
            raise OSError("unshare is not installed")
        subprocess.run(
            [unshare, "-rmn", "--pid", "--kill-child", "/bin/bash", "-c", inside, "x", *arguments],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        recorded = root / "out" / "commands"
        data = recorded.read_bytes().decode("utf-8", "replace") if recorded.exists() else ""
    out: list[list[str]] = [[]]
    for word in data.split("\0")[:-1]:
        if word == "\1":
            out.append([])
        else:
            out[-1].append(word)
    return [words for words in out if words]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
