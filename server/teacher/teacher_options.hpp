#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "api/job_spec.hpp"

namespace CLI {
class App;
}

namespace distilld {

/// Options of a served teacher. The defaults are those of the command line.
struct TeacherOptions {
    std::filesystem::path model;            ///< Hugging Face folder (config.json, safetensors), or TorchScript file
    std::vector<std::string> inputs;        ///< of a TorchScript file: tensors that its forward() takes, in this order
    std::vector<std::string> outputs;       ///< of a TorchScript file: names of the tensors that it returns
    std::string listen = "127.0.0.1:8600";  ///< ADDRESS:PORT; port 0 = any free port
    std::vector<std::string> hosts;         ///< further names in requests, besides the host of `listen`
    std::filesystem::path keys;  ///< data folder of `distilld keys`: requests need one of its keys; empty: none
    std::filesystem::path tls_certificate;  ///< PEM; empty: plain HTTP
    std::filesystem::path tls_key;          ///< PEM
    std::filesystem::path tls_client_ca;    ///< PEM; empty: clients show no certificate
    std::vector<std::string> roots;         ///< folders below which adapters may be; none: see adapter_rule()
    std::uint32_t threads = 0;              ///< per forward pass; 0 = all cores
    Dtype dtype = Dtype::auto_select;       ///< arithmetic
    std::chrono::milliseconds delay{0};     ///< added to each answer without using the CPU: simulates a distant teacher
    std::uint64_t max_batch_tokens = 16384;     ///< input positions per request, and per batch
    std::uint32_t max_sequences = 16;           ///< generated at once
    std::uint64_t max_cached_tokens = 65'536;   ///< positions of all sequences under way, at their full lengths
    std::uint32_t max_adapters = 16;            ///< LoRA adapters loaded at once
    std::string model_name = "teacher";         ///< {model} of /v2/models/{model}
    std::uint32_t max_queue = 256;              ///< requests waiting for the compute thread; beyond it 503
    std::uint64_t body_limit = 0;               ///< bytes per request; 0 = 64 KiB + 24 bytes per token of
                                                ///< max_batch_tokens; 64 MiB with a TorchScript file
    std::uint64_t response_limit = 1ULL << 30;  ///< bytes of tensors per answer; larger requests are refused (400)
    std::chrono::seconds request_timeout{120};  ///< from arrival to answer; then 503 and dropped before compute
};

/// Adds the options of `distilld teacher`, which are those of `distilld-worker teacher`, to the command. Parsing writes
/// to `options`.
void add_teacher_options(CLI::App& command, TeacherOptions& options);

/// The command line of distilld-worker for `options`: "teacher" first, without options at their default.
[[nodiscard]] std::vector<std::string> teacher_arguments(const TeacherOptions& options);

}  // namespace distilld
