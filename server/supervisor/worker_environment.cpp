#include "server/supervisor/worker_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/json_text.hpp"

namespace distilld {
namespace {

constexpr std::size_t kMaxSpecDepth = 64;
constexpr std::string_view kKeyPrefix = "DISTILLD_KEY_";

constexpr std::string_view kNames[] = {
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    // Who is who of several processes that train together, as torchrun says it.
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
};
/// Of libraries that a worker links or loads, and of the tools that look into one.
constexpr std::string_view kPrefixes[] = {
    "DISTILLD_", "LC_",     "OMP_",    "GOMP_",     "KMP_",    "MKL_",  "OPENBLAS_", "DNNL_",
    "ONEDNN_",   "CUDA_",   "CUBLAS_", "CUDNN_",    "NVIDIA_", "NCCL_", "TORCH_",    "PYTORCH_",
    "ATEN_",     "MASTER_", "MALLOC_", "SSL_CERT_", "ASAN_",   "LSAN_", "TSAN_",     "UBSAN_",
};

bool is_passed_on(std::string_view name) {
    return !name.starts_with(kKeyPrefix) &&
           (std::ranges::find(kNames, name) != std::end(kNames) ||
            std::ranges::any_of(kPrefixes, [name](std::string_view prefix) { return name.starts_with(prefix); }));
}

/// The variable that /teacher/api_key_env names, when it is one that a spec may name.
std::string key_variable(std::string_view spec_json) {
    const auto spec = parse_json_text(spec_json, kMaxSpecDepth);
    if (!spec) {
        return {};
    }
    boost::system::error_code absent;
    const auto* name = spec->find_pointer("/teacher/api_key_env", absent);
    if (name == nullptr || !name->is_string() || !std::string_view(name->get_string()).starts_with(kKeyPrefix)) {
        return {};
    }
    return std::string(name->get_string());
}

}  // namespace

std::vector<std::string> worker_environment() {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
        if (std::getenv(name) != nullptr) {
            return {};
        }
    }
    return {"GOMP_SPINCOUNT=1000"};
}

std::vector<std::string> child_environment(std::vector<std::string> settings, std::string_view spec_json) {
    const std::string key = key_variable(spec_json);
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view ours(*entry);
        const std::string_view name = ours.substr(0, ours.find('='));
        const bool replaced = std::ranges::any_of(settings, [name](const std::string& setting) {
            return setting.starts_with(name) && setting.substr(name.size()).starts_with('=');
        });
        if (!replaced && ((!key.empty() && name == key) || is_passed_on(name))) {
            settings.emplace_back(ours);
        }
    }
    return settings;
}

}  // namespace distilld
