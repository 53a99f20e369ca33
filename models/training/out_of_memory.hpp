#pragma once

#include <exception>
#include <string>

namespace distilld::models {

/// Whether `error` means out of memory: std::bad_alloc, or an exception of libtorch's allocators (on a CPU recognized
/// by its text). Any thread. Torch-free header.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);

/// The first line of the message, without libtorch's backtrace.
[[nodiscard]] std::string memory_words(const std::exception& error);

}  // namespace distilld::models
