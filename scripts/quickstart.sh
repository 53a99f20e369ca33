#!/usr/bin/env bash
# From a fresh machine to a distilled model: installs what is missing, builds, trains a small teacher on real English
# text, serves it, and distils a student a fraction of its size from it with one POST to the service.
#
# Both are shaped like Qwen3 and read the text with a byte-level BPE tokenizer that is trained on it.
#
#   --text FILE…    train on these text files (UTF-8, a few MB) instead of the machine's own documentation
#   --report FILE   also write the figures as JSON: teacher_loss, student_alone_loss, distilled_loss (nats per token, on
#                   held-out text), tokens_per_second_sequential, tokens_per_second_parallel, teacher_hidden_fraction
#                   (0 to 1), student_folder, as_expected (teacher < distilled < alone)
#   --quick         small models, little text and few steps: shows in half a minute that everything works, not how well;
#                   the expected order of the losses is promised only for the full size
#   --seed N        of new weights and of the order of the text (default 1)
#   --keep          leave the teacher and the service running at the end
#   --work FOLDER   folder for all results (default .quickstart/)
#   --bin FOLDER    use distilld and distilld-worker from there; install and build nothing
#
# It can be run again at any time.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$root/.quickstart
bin=$root/build/release/bin

# Sizes, chosen by trial on several texts and seeds (docs/quickstart.md). The teacher takes most of the time: it
# sees twice as many tokens as the student. In so few steps, wide and shallow models learn more than deep ones, small
# batches more than large ones, and larger initial weights than usual far more. During distillation teacher and student
# have one core each. The teacher's time per micro-batch should be below the student's, so that all of it can be hidden.
text_megabytes=5
eval_kilobytes=96
vocabulary=1024
sequence_length=128
initializer_range=0.06
teacher_model='{"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64}'
teacher_batch_size=2
teacher_steps=2000
student_model='{"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32}'
batch_size=4
student_steps=450
sequential_steps=100
learning_rate=3e-3
temperature=1.0
kd_ratio=0.8

keep=0
report=
seed=1
built=1
texts=()
while [ $# -gt 0 ]; do
    case $1 in
        --keep) keep=1 ;;
        --report) report=${2:?--report takes a file}; shift ;;
        --seed)
            seed=${2:?--seed takes a number}
            [[ $seed =~ ^[0-9]{1,18}$ ]] || { echo "quickstart: --seed takes a number, not $seed" >&2; exit 2; }
            shift
            ;;
        --work) work=$(realpath -m -- "${2:?--work takes a folder}"); shift ;;
        --bin)
            bin=$(realpath -e -- "${2:?--bin takes a folder}") || exit 2
            built=0
            shift
            ;;
        --quick)
            text_megabytes=0.2
            eval_kilobytes=8
            vocabulary=512
            sequence_length=64
            initializer_range=0.1
            teacher_model='{"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24}'
            teacher_steps=400
            student_model='{"hidden_size": 48, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12}'
            student_steps=80
            learning_rate=5e-3
            sequential_steps=20
            ;;
        --text)
            while [ $# -gt 1 ] && [[ $2 != --* ]]; do
                texts+=("$(realpath -e -- "$2")") || exit 2
                shift
            done
            if [ ${#texts[@]} = 0 ]; then echo "quickstart: --text takes one file or more" >&2; exit 2; fi
            ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "quickstart: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    shift
done
[ -z "$report" ] || report=$(realpath -m -- "$report")

say() { printf '\n== %s\n' "$*"; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

teacher_pid=
service_pid=
stop_process() {
    [ -n "$1" ] || return 0
    kill -TERM "$1" 2>/dev/null || return 0
    for _ in $(seq 100); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$1" 2>/dev/null || true
}
cleanup() {
    local status=$?
    trap - EXIT INT TERM
    if [ "$keep" = 0 ] || [ "$status" != 0 ]; then
        stop_process "$service_pid"
        stop_process "$teacher_pid"
        rm -f "$work/pids"
        wait
    fi
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Prints a field of the JSON document on standard input: field /progress/tokens
field() {
    python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].strip("/").split("/"):
    value = value[name] if value is not None else None
print("" if value is None else value)' "$1"
}

# The Python of the checkout, or the machine's own.
python_with_tokenizers() {
    local python
    for python in "$root/.deps/venv/bin/python" python3; do
        if "$python" -c 'import tokenizers' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    die "no Python here has the package tokenizers: scripts/setup.sh installs it, or pip install tokenizers"
}

free_port() {
    python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_ready URL PID LOG WHAT
wait_ready() {
    for _ in $(seq 300); do
        if curl -sf -o /dev/null --max-time 2 "$1"; then return 0; fi
        if ! kill -0 "$2" 2>/dev/null; then
            tail -n 20 "$3" >&2
            die "$4 has ended; its log is $3"
        fi
        sleep 0.2
    done
    die "$4 was not ready within a minute; its log is $3"
}

# Ends processes that an earlier --keep left running, if they are still ours.
stop_kept() {
    local pid
    [ -e "$work/pids" ] || return 0
    while read -r pid; do
        # The link ends in " (deleted)" if a build has replaced the program since.
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in "$bin"/distilld*) stop_process "$pid" ;; esac
    done <"$work/pids"
    rm -f "$work/pids"
}

# spec NAME MODEL STEPS TEACHER(yes|no) PARALLEL LEARNING_RATE THREADS: prints the job as JSON. MODEL: folder or config
spec() {
    VOCABULARY=$vocabulary NAME=$1 MODEL=$2 STEPS=$3 TEACHER=$4 PARALLEL=$5 RATE=$6 THREADS=$7 WORK=$work \
        TEACHER_URL=${teacher_url:-} LENGTH=$sequence_length BATCH=$batch_size TEMPERATURE=$temperature KD=$kd_ratio \
        INITIALIZER_RANGE=$initializer_range SEED=$seed \
        python3 -c '
import json, os
e = os.environ
if e["MODEL"].startswith("{"):
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": int(e["VOCABULARY"]),
              "max_position_embeddings": int(e["LENGTH"]), "tie_word_embeddings": True,
              "initializer_range": float(e["INITIALIZER_RANGE"]), **json.loads(e["MODEL"])}
    student = {"init": "random", "config": config, "tokenizer": e["WORK"] + "/tokenizer"}
else:
    student = {"model": e["MODEL"]}
job = {
    "name": e["NAME"],
    "student": student,
    "dataset": {"train": e["WORK"] + "/data/train.jsonl", "eval": e["WORK"] + "/data/eval.jsonl",
                "sequence_length": int(e["LENGTH"])},
    "training": {"parallel": e["PARALLEL"] == "true", "batch_size": int(e["BATCH"]), "micro_batches": 1,
                 "max_steps": int(e["STEPS"]), "learning_rate": float(e["RATE"]), "lr_scheduler_type": "cosine",
                 "warmup_steps": int(e["STEPS"]) // 20, "weight_decay": 0.01, "adam_beta2": 0.95,
                 "seed": int(e["SEED"]), "threads": int(e["THREADS"]), "logging_steps": 20},
    "output": e["WORK"] + "/" + e["NAME"],
}
if e["TEACHER"] == "yes":
    job["teacher"] = {"endpoints": [e["TEACHER_URL"]], "protocol": "kserve", "max_concurrent": 2}
    job["training"].update(temperature=float(e["TEMPERATURE"]), kd_ratio=float(e["KD"]))
print(json.dumps(job, indent=2))'
}

# submit FILE: prints the id of the job.
submit() {
    local answer
    answer=$(curl -sS --fail-with-body -H 'Content-Type: application/json' --data-binary @"$1" \
        "$service_url/v1/jobs") || die "the service refused $1: $answer"
    field /id <<<"$answer"
}

# follow ID: shows progress until the end; the job must succeed.
follow() {
    local job state step shown=
    for _ in $(seq 1200); do
        job=$(curl -sS --fail-with-body --max-time 10 "$service_url/v1/jobs/$1") || die "the service is gone: $job"
        state=$(field /state <<<"$job")
        step=$(field /progress/step <<<"$job")
        if [ -n "$step" ] && [ "$step" != "$shown" ]; then
            shown=$step
            python3 -c 'import json, sys
p = json.load(sys.stdin)["progress"]
print("   step %4d of %d  loss %.3f  %6.0f tokens/s  waiting for the teacher %.1f%%" % (
    p["step"], p["total_steps"], p["loss"], p["tokens_per_second"], 100 * p["stall_fraction"]))' <<<"$job"
        fi
        case $state in
            succeeded) return 0 ;;
            failed | cancelled) die "job $1 $state: $(field /status_reason/message <<<"$job")" ;;
        esac
        sleep 1
    done
    die "job $1 did not end in 20 minutes"
}

# run_job NAME: submits NAME.json, follows it, and saves the finished job in NAME.result.json.
run_job() {
    local id
    id=$(submit "$work/$1.json")
    echo "   curl $service_url/v1/jobs/$id"
    follow "$id"
    curl -sS --fail "$service_url/v1/jobs/$id" >"$work/$1.result.json"
}

mkdir -p "$work"
exec 8>"$work/lock"
flock -n 8 || die "another quickstart is running in $work"

if [ "$built" = 1 ]; then
    DISTILLD_SKIP_TEST_VENV=1 "$root/scripts/setup.sh"
    "$root/scripts/build.sh" release distilld distilld-worker
fi
stop_kept
started=$SECONDS
rm -rf "$work"/{data,tokenizer,service,teacher,alone,distilled,sequential,*.json,*.log}

say "Text"
text_options=()
if [ ${#texts[@]} -gt 0 ]; then text_options=(--text "${texts[@]}"); fi
python3 "$root/scripts/quickstart_data.py" "$work/data" --megabytes "$text_megabytes" \
    --eval-kilobytes "$eval_kilobytes" "${text_options[@]}"

say "Tokenizer"
"$(python_with_tokenizers)" "$root/tools/train_tokenizer.py" "$work/tokenizer" --vocabulary "$vocabulary" \
    "$work/data/train.jsonl"

say "Teacher: trained from scratch with 'distilld run', on all cores"
batch_size=$teacher_batch_size \
    spec teacher "$teacher_model" "$teacher_steps" no true "$learning_rate" 0 >"$work/teacher.json"
"$bin/distilld" run "$work/teacher.json" --report "$work/teacher.result.json" 8>&-

say "Teacher served, service started"
teacher_port=$(free_port)
teacher_url=http://127.0.0.1:$teacher_port
"$bin/distilld" teacher "$work/teacher" --listen "127.0.0.1:$teacher_port" --threads 1 >"$work/teacher.log" 2>&1 8>&- &
teacher_pid=$!
service_port=$(free_port)
service_url=http://127.0.0.1:$service_port
"$bin/distilld" serve --listen "127.0.0.1:$service_port" --data-dir "$work/service" >"$work/service.log" 2>&1 8>&- &
service_pid=$!
printf '%s\n%s\n' "$service_pid" "$teacher_pid" >"$work/pids"
wait_ready "$teacher_url/v2/health/ready" "$teacher_pid" "$work/teacher.log" "the teacher"
wait_ready "$service_url/readyz" "$service_pid" "$work/service.log" "the service"
echo "   teacher $teacher_url   service $service_url"

say "Student distilled from the teacher, parallel: true"
spec distilled "$student_model" "$student_steps" yes true "$learning_rate" 1 >"$work/distilled.json"
run_job distilled

say "The same with parallel: false, for $sequential_steps steps"
spec sequential "$student_model" "$sequential_steps" yes false "$learning_rate" 1 >"$work/sequential.json"
run_job sequential

say "Student trained alone for the same steps"
spec alone "$student_model" "$student_steps" no true "$learning_rate" 0 >"$work/alone.json"
run_job alone

say "Result after $((SECONDS - started)) s"
python3 "$root/scripts/quickstart_result.py" "$work" "$service_url" ${report:+--report "$report"}

if [ "$keep" = 1 ]; then
    echo
    echo "   still running: the service (process $service_pid) and the teacher ($teacher_pid). To end them:"
    echo "   kill $service_pid $teacher_pid"
fi

echo
echo "   To serve the student, and to ask it from another terminal:"
echo "   $bin/distilld teacher $work/distilled"
echo "   curl http://127.0.0.1:8600/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 40}'"
