"""Which engine computes the answers of an end-to-end test: ours, or a real one of others.

  SCRIPT --engine llama-server|vllm      (or TANDEM_E2E_ENGINE) for scripts that were written for our own engine
Models are named by their GGUF file; vLLM gets the tiny hybrid in its own form, made by tests/engines/make_hf.py.
"""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem"
TOOLS = {"llama-server": ROOT / "tools" / "peer_llama_server", "vllm": ROOT / "tools" / "peer_vllm"}
OURS = "tandem"
# Bounded memory (1 GiB of cache), two threads that are not bound to cores, no look at networks.
VLLM_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
PARSERS = ["--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"]


def program(engine):
    """The path of an installed engine; the script ends as skipped without it. TANDEM_PEER_VLLM and the like name another."""
    if named := os.environ.get("TANDEM_PEER_" + engine.upper().replace("-", "_")):
        return named
    done = subprocess.run([TOOLS[engine], "--present"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"skipped: {engine} is not installed ({TOOLS[engine].relative_to(ROOT)} makes it)")
        sys.exit(77)
    return done.stdout.strip()


def hf_folder():
    """The tiny hybrid in the form that vLLM loads."""
    folder = CACHE / "models" / "tiny-hybrid-hf"
    if not (folder / "model.safetensors").exists():
        python = pathlib.Path(program("vllm")).with_name("python")
        subprocess.run([python, ROOT / "tests" / "engines" / "make_hf.py", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def keys_of(engine, file):
    """The keys of a model's table that say what computes it."""
    if engine == OURS:
        return {"file": str(file)}
    if engine == "llama-server":
        return {"engine": engine, "file": str(file), "command": [program(engine)], "threads": 2}
    return {"engine": engine, "repository": str(hf_folder()), "command": [program(engine), "serve"], "kv": "1GiB",
            "arguments": ["--enforce-eager"], "environment": VLLM_ENVIRONMENT}


def chosen():
    """The engine of this script, taken out of its arguments."""
    if "--engine" not in sys.argv:
        return os.environ.get("TANDEM_E2E_ENGINE") or OURS
    at = sys.argv.index("--engine")
    name = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    if name not in (OURS, *TOOLS):
        sys.exit(f"--engine {name}: one of {', '.join((OURS, *TOOLS))}")
    return name
