#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld {

/// SHA-256 of bytes in pieces. One thread at a time. Throws std::bad_alloc, or std::runtime_error if OpenSSL has no
/// SHA-256.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void add(std::span<const std::byte> bytes);

    /// Adds the bytes of the values, in memory order.
    template <class T>
    void add(std::span<const T> values) {
        add(std::as_bytes(values));
    }
    void add(std::uint64_t value) { add(std::span<const std::uint64_t>(&value, 1)); }

    /// 64 lower-case hex digits. Call once, last.
    [[nodiscard]] std::string hex();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// SHA-256 of a text, 64 lower-case hex digits. Any thread.
std::string sha256_text(std::string_view text);

/// SHA-256 of a file's bytes, 64 lower-case hex digits. Reads in pieces. Any thread.
Result<std::string> sha256_file(const std::filesystem::path& path);

}  // namespace distilld
