#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

/// The head for clients that request hidden states and compute logits themselves. No libtorch here.
namespace distilld::models {

/// A safetensors file with one tensor, "lm_head.weight" [V, H], as it is sent; never on disk. Copies share the values.
struct ServedHead {
    std::string dtype;   ///< F32, BF16 or F16: the smallest that holds every value exactly
    std::string prefix;  ///< length of the header and the header
    std::span<const std::byte> values{};
    std::shared_ptr<const void> owner{};  ///< keeps the values alive
    std::string sha256;                   ///< of the whole file, 64 lower-case hex digits; empty = no head

    [[nodiscard]] bool is_there() const noexcept { return !sha256.empty(); }
    [[nodiscard]] std::uint64_t file_bytes() const noexcept { return prefix.size() + values.size(); }

    /// Bytes of the file from `first` on, at most `count`. Any thread.
    [[nodiscard]] std::string piece(std::uint64_t first, std::uint64_t count) const;
};

}  // namespace distilld::models
