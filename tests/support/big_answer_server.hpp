#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace distilld::test {

/// A teacher of the seed protocol whose answers are as large as real ones: rows of `vocabulary` logits with all their
/// digits. A process of its own, so that its memory is not counted as the client's. Start it before any thread.
class BigAnswerServer {
  public:
    virtual ~BigAnswerServer() = default;
    [[nodiscard]] virtual std::string url() const = 0;
    /// Bytes of the answer to a request of `rows` sequences with `columns` positions.
    [[nodiscard]] virtual std::uint64_t answer_bytes(std::uint32_t rows, std::uint32_t columns) const = 0;
};

/// Throws system_error.
[[nodiscard]] std::unique_ptr<BigAnswerServer> make_big_answer_server(std::uint32_t vocabulary);

}  // namespace distilld::test
