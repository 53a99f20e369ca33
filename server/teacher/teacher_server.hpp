#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// What `distilld-worker teacher` is started with. Defaults are those of the command line.
struct TeacherServerOptions {
    std::filesystem::path model_dir;         ///< Hugging Face folder (config.json, safetensors)
    std::string listen = "127.0.0.1:8600";   ///< ADDRESS:PORT; port 0 = any free one
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

/// Serves the model until SIGTERM or SIGINT, then lets requests under way finish (5 s) and returns 0. Speaks KServe v2
/// (/v2…), the seed's JSON form (/v1/completions), /v1/models and /metrics. Prints one line to stdout once the model is
/// loaded. A model folder that cannot be loaded or an address that cannot be bound: one error line on stderr, returns
/// 1; options that make no sense: returns 2. Call it once, from the main thread: it takes over SIGTERM and SIGINT and
/// sets the number of threads of libtorch.
int run_teacher_server(const TeacherServerOptions& options);

}  // namespace distilld
