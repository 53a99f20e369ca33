#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pipeline/core/job_spec.hpp"

namespace CLI {
class App;
}

namespace distilld {

/// What a teacher is served with. The defaults are those of the command line.
struct TeacherOptions {
    std::filesystem::path model_dir;         ///< Hugging Face folder (config.json, safetensors)
    std::string listen = "127.0.0.1:8600";   ///< ADDRESS:PORT; port 0 = any free one
    std::vector<std::string> hosts;          ///< names that requests may have for it, beside those of `listen`
    std::uint32_t threads = 0;               ///< of one forward pass; 0 = all cores
    Dtype dtype = Dtype::auto_select;        ///< arithmetic; fp32 or bf16
    std::chrono::milliseconds delay{0};      ///< added to each answer without using the CPU: stands for a far teacher
    std::uint64_t max_batch_tokens = 16384;  ///< input positions of one request, and of requests computed together
    std::string model_name = "teacher";      ///< {model} of /v2/models/{model}
    std::uint32_t max_queue = 256;           ///< requests waiting for the compute thread; more are answered 503
    std::uint64_t body_limit = 0;            ///< bytes of a request; 0 = 64 KiB + 24 bytes a token of max_batch_tokens
    std::uint64_t response_limit = 1ULL << 30;  ///< bytes of tensors in one answer; larger requests are refused (400)
    std::chrono::seconds request_timeout{120};  ///< from arrival to answer; then 503 and dropped before compute
};

/// Adds the options of `distilld teacher`, which are those of `distilld-worker teacher`, to the command; what is parsed
/// is written into `options`.
void add_teacher_options(CLI::App& command, TeacherOptions& options);

/// The command line of distilld-worker that stands for `options`: "teacher" first, without what is left at its default.
[[nodiscard]] std::vector<std::string> teacher_arguments(const TeacherOptions& options);

}  // namespace distilld
