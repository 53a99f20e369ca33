#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace distilld {

/// What the ranks of a job send each other: workers that train one student together, each on some micro-batches of
/// every step. What one rank sends to another arrives in the order of the calls, and each call has its counterpart on
/// the other rank. Thread-safe. Whatever waits throws if another rank is lost.
class RankExchange {
  public:
    /// Bytes on their way. They must outlive it.
    class Transfer {
      public:
        virtual ~Transfer() = default;
        /// Until they may be reused or read. Once.
        virtual void wait() = 0;
    };

    virtual ~RankExchange() = default;

    [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t count() const noexcept = 0;

    /// Both sides know the size.
    [[nodiscard]] virtual std::unique_ptr<Transfer> begin_send(std::span<const std::byte> bytes, std::uint32_t to) = 0;
    [[nodiscard]] virtual std::unique_ptr<Transfer> begin_receive(std::span<std::byte> bytes, std::uint32_t from) = 0;
    /// This rank exchanges nothing any more: whatever waits here throws, now and later.
    virtual void abandon() noexcept = 0;

    void send(std::span<const std::byte> bytes, std::uint32_t to) { begin_send(bytes, to)->wait(); }
    void receive(std::span<std::byte> bytes, std::uint32_t from) { begin_receive(bytes, from)->wait(); }
    /// The bytes of rank 0 get to all.
    void broadcast(std::span<std::byte> bytes);
    /// Each rank's message, in the order of the ranks. They may differ in size.
    [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
};

}  // namespace distilld
