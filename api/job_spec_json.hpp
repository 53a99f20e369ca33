#pragma once

#include <boost/json/object.hpp>
#include <boost/system/result.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "api/violation.hpp"
#include "pipeline/core/job_spec.hpp"

/// The job spec as JSON: the only place that reads or writes it. Fields, defaults and ranges (also in
/// docs/job-spec.md); everything not marked required may be left out, and null is not a value of any field:
///
///   name                        text of 1–128 letters, digits, spaces and . _ - : ; default "job"
///   student.model               Hugging Face folder; required, unless init is "random" and config is given
///   student.init                "pretrained" (default) | "random"
///   student.config              object: fields of a Llama config.json, laid over the folder's
///   student.dtype               "auto" (default) | "fp32" | "bf16"
///   teacher                     absent = plain training on the data
///   teacher.endpoints           required: 1–256 http or https URLs, each once, without user name, password, fragment
///   teacher.protocol            "kserve" (default) | "seed"
///   teacher.model               1–256 characters; default "teacher"
///   teacher.max_concurrent      "auto" | 1–1024; default 8. Requests in flight; "auto" searches below 1024
///   teacher.window              0–1048576 micro-batches; default 0 = 4 × max_concurrent
///   teacher.window_bytes        1–2^50; default 2^30
///   teacher.timeout_secs        > 0, ≤ 86400; default 60. Of one request
///   teacher.startup_timeout_secs  0 … 86400; default 60. How long the first endpoint to be up is waited for
///   teacher.top_k               0–65536; default 0 = full logits
///   teacher.api_key_env         name of an environment variable; default "" = none
///   teacher.ca_file             PEM file; default "" = none
///   teacher.max_retries         0–1000; default 8
///   teacher.hedge               boolean; default true
///   dataset.train               required: JSONL file
///   dataset.eval                JSONL file; default "" = none
///   dataset.sequence_length     required: 1–1048576
///   dataset.packing             boolean; default true
///   training.parallel           boolean; default true
///   training.overlap_optimizer  boolean; default true
///   training.batch_size         1–65536 | "auto"; default 1
///   training.micro_batches      1–65536; default 1
///   training.max_steps          1–10^12   } exactly one of the two is required
///   training.epochs             > 0, ≤ 10^6 }
///   training.learning_rate      0–100; default 1e-4
///   training.lr_scheduler_type  "constant" | "linear" (default) | "cosine"
///   training.warmup_steps       0–10^12; default 0
///   training.weight_decay       0–100; default 0
///   training.max_grad_norm      0–10^9; default 1; 0 = no clipping
///   training.adam_beta1, _beta2 0 ≤ x < 1; defaults 0.9, 0.999
///   training.adam_epsilon       > 0, ≤ 1; default 1e-8
///   training.temperature        > 0, ≤ 1000; default 1
///   training.kd_ratio           0–1; default 1 with a teacher, 0 without; above 0 needs a teacher
///   training.beta               0 (forward KL); others are refused for now
///   training.seed               0–2^64-1; default 42
///   training.threads            0–4096; default 0 = all cores
///   training.logging_steps      1–10^12; default 1
///   training.eval_steps         0–10^12; default 0 = at the end only
///   checkpoint.every_steps      0–10^12; default 0 = only when interrupted and at the end
///   checkpoint.keep             1–1000; default 2
///   checkpoint.dir              folder; default "" = checkpoints/ in output
///   output                      required: folder; not the folder of student.model
namespace distilld::api {

/// Largest spec that is read, and its deepest nesting.
inline constexpr std::size_t kSpecSizeLimit = 1U << 20;
inline constexpr std::size_t kSpecDepthLimit = 32;

/// All that is wrong with a spec: keys that stand twice, then field by field in the order of the list above.
struct SpecViolations {
    std::vector<Violation> violations;
};

/// One line a violation: "/training/beta: …" (no final newline).
[[nodiscard]] std::string describe(const SpecViolations& violations);

/// Found by boost::system::result through argument-dependent lookup: ErrorException(invalid_input).
[[noreturn]] void throw_exception_from_error(const SpecViolations& violations, const boost::source_location&);

using ParsedSpec = boost::system::result<JobSpec, SpecViolations>;

/// Validates the whole spec; every violation is listed. Reads no file, so folders may still turn out missing.
[[nodiscard]] ParsedSpec parse_job_spec(std::string_view json);

/// The spec with every default filled in (empty optional texts and an absent teacher are left out).
/// parse_job_spec(to_json(s)) gives s back for every s that parse_job_spec gave.
[[nodiscard]] std::string to_json(const JobSpec& spec);
[[nodiscard]] boost::json::object to_json_object(const JobSpec& spec);

[[nodiscard]] const char* to_string(Dtype value) noexcept;
[[nodiscard]] const char* to_string(StudentInit value) noexcept;
[[nodiscard]] const char* to_string(LrScheduler value) noexcept;

}  // namespace distilld::api
