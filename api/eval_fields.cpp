#include "api/section_fields.hpp"

namespace distilld::api {

using enum DecidesWeights::Answer;

// These fields only report on a run and do not affect it.
std::vector<SpecField> eval_fields() {
    constexpr std::size_t kMaxPrompts = 16;
    constexpr std::size_t kMaxWords = 256;
    constexpr std::uint64_t kMaxEvalSteps = 1'000'000'000'000;
    return {
        {.pointer = "/eval/max_rows",
         .kind = make_integer(&EvalSpec::max_rows, {0, 1ULL << 50}),
         .decides_weights = no,
         .help = "rows of `dataset.eval` to evaluate, from the first",
         .default_note = "= all",
         .also_known_as = {"max_eval_samples"}},
        {.pointer = "/eval/ask_teacher",
         .kind = make_boolean(&EvalSpec::ask_teacher),
         .decides_weights = no,
         .help = "ask the teacher about the held-out rows too: for the student's KL divergence from it, and for how "
                 "often both rank the same token first (docs/training.md)"},
        {.pointer = "/eval/sample_prompts",
         .kind = make_texts(&EvalSpec::sample_prompts, {.text = {.may_break_lines = true}, .max_count = kMaxPrompts}),
         .decides_weights = no,
         .help = "texts that the student continues at each evaluation, shown in the log, events and sinks; needs "
                 "`dataset.eval`"},
        {.pointer = "/eval/sample_tokens",
         .kind = make_integer(&EvalSpec::sample_tokens, {1, 256}),
         .decides_weights = no,
         .help = "tokens per continuation; it ends earlier if the student ends the text"},
        {.pointer = "/eval/sample_temperature",
         .kind = make_number(&EvalSpec::sample_temperature, {.max = 100}),
         .decides_weights = no,
         .help = "above 0: draw the tokens, by `training.seed` and the step",
         .default_note = "= always the most likely token"},
        {.pointer = "/eval/command",
         .kind = make_texts(&EvalSpec::command, {.text = {.may_break_lines = true}, .max_count = kMaxWords}),
         .decides_weights = no,
         .help =
             "program and its arguments, without a shell, that judges the exported student and prints a JSON object "
             "of numbers; `{checkpoint}` and `{step}` stand for the exported folder and the step "
             "(docs/training.md)"},
        {.pointer = "/eval/every_steps",
         .kind = make_integer(&EvalSpec::every_steps, {0, kMaxEvalSteps}),
         .decides_weights = no,
         .help = "steps between two runs of `eval.command`, which always runs at the end",
         .default_note = "= at the end only"},
        {.pointer = "/eval/command_timeout_secs",
         .kind = make_seconds(&EvalSpec::command_timeout_secs, {.max = 86400, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "seconds that one run of `eval.command` may take; then it is killed"},
    };
}

}  // namespace distilld::api
