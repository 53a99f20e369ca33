#include "api/section_fields.hpp"
#include "api/spec_rules.hpp"

namespace distilld::api {

using enum DecidesWeights::Answer;

std::vector<SpecField> rollout_fields() {
    return {
        {.pointer = "/rollout/endpoints",
         .kind = make_urls(&RolloutSpec::endpoints, 256),
         .decides_weights = no,
         .help =
             "URLs of servers with the student's model, such as `distilld teacher MODEL`: each is given the adapter, "
             "or all weights, of every step. They must see `output` under the same path"},
        {.pointer = "/rollout/protocol",
         .kind = make_choice(&RolloutSpec::protocol, kRolloutProtocolNames),
         .decides_weights = no,
         .help = "kind of the servers; auto asks each one"},
        // The checkpoint holds a hash of the prompts, so the file may have moved.
        {.pointer = "/rollout/prompts",
         .kind = make_paths(&RolloutSpec::prompts, PathUse::reads, "data file or pattern", kMaxDatasetFiles),
         .decides_weights = no,
         .help =
             "JSONL with the prompts: lines with `prompt`, `input_ids`, or `instruction` and `input`; other fields are "
             "ignored",
         .required = "the JSONL file with the prompts",
         .there = Named::file},
        {.pointer = "/rollout/max_prompt_tokens",
         .kind = make_integer(&RolloutSpec::max_prompt_tokens, {1, 1U << 18}),
         .decides_weights = yes,
         .help = "maximum tokens of a prompt; a longer one is refused. With `max_tokens` it makes up "
                 "`dataset.sequence_length` if that is not given"},
        {.pointer = "/rollout/max_tokens",
         .kind = make_integer(&RolloutSpec::max_tokens, {1, 1U << 18}),
         .decides_weights = yes,
         .help = "maximum tokens of an answer",
         .also_known_as = {"max_completion_length", "max_new_tokens"}},
        {.pointer = "/rollout/temperature",
         .kind = make_number(&RolloutSpec::temperature, {.max = 100}),
         .decides_weights = yes,
         .help = "temperature of the answers, drawn by `training.seed`, row and epoch; 0: always the likeliest token"},
        {.pointer = "/rollout/top_p",
         .kind = make_number(&RolloutSpec::top_p, {.max = 1, .ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "answers are drawn among the likeliest tokens that have this mass together (nucleus sampling)"},
        {.pointer = "/rollout/lmbda",
         .kind = make_number(&RolloutSpec::lmbda, {.max = 1}),
         .decides_weights = yes,
         .help = "share of the prompts that the student answers, drawn per row and epoch by `training.seed`. A row of "
                 "`dataset.train` takes the place of each other one: row r that of prompt r, if both have as many"},
        {.pointer = "/rollout/replay",
         .kind = make_path(&RolloutSpec::replay, PathUse::reads, "JSONL file", true),
         .decides_weights = no,
         .help = "`rollouts.jsonl` of an earlier run of the same spec: trains on its answers again, to the same bits, "
                 "without `endpoints`",
         .there = Named::file},
        {.pointer = "/rollout/staleness",
         .kind = make_integer(&RolloutSpec::staleness, {0, 64}),
         .decides_weights = yes,
         .help = "steps between the weights that write for a step and that step, exactly: 0 is strictly on-policy, 1 "
                 "lets the student train while its next answers are written",
         .also_known_as = {"max_staleness"}},
        {.pointer = "/rollout/keep",
         .kind = make_boolean(&RolloutSpec::keep),
         .decides_weights = no,
         .help = "keep all answers in `rollouts.jsonl` of `output`: a run that goes on from a checkpoint reads them "
                 "again. false: they are written again, which takes servers that repeat them"},
        {.pointer = "/rollout/require_repeatable",
         .kind = make_boolean(&RolloutSpec::require_repeatable),
         .decides_weights = no,
         .help = "refuse a server that does not write the same answer to the same seed; false: only warn"},
        {.pointer = "/rollout/timeout_secs",
         .kind = make_seconds(&RolloutSpec::timeout_secs, {.max = 86400, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "seconds that the answers to one micro-batch may take"},
        {.pointer = "/rollout/patience_secs",
         .kind = make_seconds(&RolloutSpec::patience_secs, {.max = 2592000, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "seconds that a job waits while no endpoint answers"},
        {.pointer = "/rollout/api_key_env",
         .kind =
             make_text(&RolloutSpec::api_key_env, {.max_bytes = 256, .may_be_empty = true, .form = &kKeyVariableForm}),
         .decides_weights = no,
         .help = "environment variable of the worker with the key of the endpoints (`Authorization: Bearer`)"},
        {.pointer = "/rollout/ca_file",
         .kind = make_path(&RolloutSpec::ca_file, PathUse::reads, "PEM file", true),
         .decides_weights = no,
         .help = "PEM file with certificates to trust in addition to the system's",
         .there = Named::file},
    };
}

namespace {

void take_lengths(SpecReading& reading) {
    const RolloutSpec& rollout = *reading.spec.rollout;
    std::uint32_t& length = reading.spec.dataset.sequence_length;
    const std::uint32_t needed = rollout.max_prompt_tokens + rollout.max_tokens;
    if (!reading.given("/dataset/sequence_length")) {
        length = needed;
    } else if (reading.good.contains("/dataset/sequence_length") && length < needed) {
        reading.violate("/dataset/sequence_length", "conflict",
                        "is " + std::to_string(length) + ", but a prompt and its answer may have " +
                            std::to_string(needed) + " tokens (/rollout/max_prompt_tokens and max_tokens)");
    }
}

}  // namespace

void rollouts_are_of_a_graded_adapter(SpecReading& reading) {
    if (!reading.spec.rollout) {
        return;
    }
    JobSpec& spec = reading.spec;
    const auto conflict = [&reading](const char* pointer, const char* why) {
        reading.violate(pointer, "conflict", why);
    };
    take_lengths(reading);
    if (spec.kind != JobKind::train) {
        conflict("/rollout", "is for a job that trains, and this one generates");
    }
    if (!spec.has_teacher() && !reading.given("/teachers")) {
        conflict("/rollout", "needs a teacher that grades the answers: give /teacher");
    }
    if (reading.given("/teachers")) {
        conflict("/rollout", "takes a single /teacher, not /teachers");
    }
    if (const TeacherSpec* teacher = spec.teacher()) {
        if (!teacher->store.empty()) {
            conflict("/teacher/store", "cannot hold answers that are written while the job runs: leave it out");
        }
        if (!teacher->tokenizer.empty()) {
            conflict("/teacher/tokenizer", "is for texts, and the student's answers are tokens: leave it out");
        }
    }
    if (spec.student.lora && spec.student.lora->merge) {
        conflict("/student/lora/merge", "is not for /rollout, whose student is its adapter: leave it out");
    }
    if (!spec.rollout->keep && spec.rollout->staleness > 0) {
        conflict("/rollout/keep", "is false, but with staleness a run goes on only with the answers that it has kept");
    }
    const RolloutProtocol servers = spec.rollout->protocol;
    if (!spec.student.lora && servers != RolloutProtocol::automatic && dialect_of(servers).update == nullptr) {
        reading.violate("/rollout/protocol", "conflict",
                        std::string("is ") + name_of(kRolloutProtocolNames, servers) +
                            ", which takes adapters alone while it runs: give /student/lora");
    }
    if (spec.student.format != StudentFormat::huggingface) {
        conflict("/student/format", "is torchscript, and /rollout takes a language model");
    }
    if (spec.rollout->endpoints.empty() && spec.rollout->replay.empty() && !reading.given("/rollout/endpoints")) {
        reading.require("/rollout/endpoints",
                        "the URLs of servers with the student's base model, such as [\"http://127.0.0.1:8600\"]");
    }
    if (spec.rollout->lmbda == 1 && !spec.dataset.train.empty()) {
        conflict("/dataset/train", "is replaced by /rollout/prompts: leave it out, or give /rollout/lmbda below 1");
    } else if (spec.rollout->lmbda < 1 && !reading.given("/dataset/train")) {
        reading.require("/dataset/train", "the rows that take the places of prompts (/rollout/lmbda is below 1)");
    }
    if (!reading.given("/dataset/packing")) {
        spec.dataset.packing = Packing::off;
    } else if (spec.dataset.packing != Packing::off) {
        conflict("/dataset/packing", "must be false with /rollout: each prompt is a row");
    }
    if (spec.training.ranks > 1 || (spec.placement && spec.placement->ranks() > 1)) {
        conflict("/rollout", "takes one rank: leave out /training/ranks and the ranks of /placement");
    }
}

}  // namespace distilld::api
