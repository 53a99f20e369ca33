#pragma once

#include <exception>
#include <string>

namespace distilld::models {

/// Whether it was thrown because memory could not be had: std::bad_alloc, and what libtorch throws of its allocators
/// (on a CPU an error like any other, known by its words). Any thread. Torch-free header.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);

/// The first line of what it says, without libtorch's backtrace.
[[nodiscard]] std::string memory_words(const std::exception& error);

}  // namespace distilld::models
