#include "models/training/out_of_memory.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <string_view>

namespace distilld::models {
namespace {

/// Messages that libtorch throws as a plain c10::Error or as a std::runtime_error.
constexpr std::string_view kWords[] = {
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
};

}  // namespace

bool is_out_of_memory(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
        dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
        return true;
    }
    const std::string_view said = error.what();
    return std::ranges::any_of(kWords,
                               [said](std::string_view words) { return said.find(words) != std::string_view::npos; });
}

std::string memory_words(const std::exception& error) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    const std::string said = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
    return said.substr(0, said.find('\n'));
}

}  // namespace distilld::models
