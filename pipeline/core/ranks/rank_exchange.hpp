#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace distilld {

/// What the ranks of a job send each other: workers that train one student together, each on some micro-batches of
/// every step. Every rank makes the same calls in the same order. All calls block, come from one thread at a time, and
/// throw if another rank is lost.
class RankExchange {
  public:
    virtual ~RankExchange() = default;

    [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t count() const noexcept = 0;

    /// Both sides know the size.
    virtual void send(std::span<const std::byte> bytes, std::uint32_t to) = 0;
    virtual void receive(std::span<std::byte> bytes, std::uint32_t from) = 0;
    /// The bytes of rank 0 get to all.
    virtual void broadcast(std::span<std::byte> bytes) = 0;
    /// Each rank's message, in the order of the ranks. They may differ in size.
    [[nodiscard]] virtual std::vector<std::string> gather(const std::string& mine) = 0;
};

}  // namespace distilld
