#pragma once

#include <torch/torch.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

/// Several micro-batches in forward and backward at once, each on a thread of its own: their gradients are added in
/// their order to the .grad that they share, so that its bits do not depend on which thread is faster.
namespace distilld::models {

/// Micro-batches that may be in forward or backward at once.
constexpr std::uint64_t kMaxReplicas = 16;

/// Whose turn it is to add to each gradient. A micro-batch's ticket is its place in the order, counted from 0 over all
/// steps. Ticket t may begin only when all tickets up to t − kMaxReplicas have ended. Thread-safe.
class GradientOrder {
  public:
    /// `tied_table`: the table of a network whose head is its embedding; undefined: it has none.
    explicit GradientOrder(torch::Tensor tied_table = {}) : tied_table_(std::move(tied_table)) {}

    /// Waits until every smaller ticket has left `place` or ended.
    void enter(const void* place, std::uint64_t ticket);
    void leave(const void* place, std::uint64_t ticket);
    /// The ticket adds nothing any more, whether or not it has added everything.
    void end(std::uint64_t ticket);

    [[nodiscard]] bool is_tied(const torch::Tensor& table) const { return tied_table_.is_same(table); }

    /// Keeps `rows` [n, H], the part of ticket's gradient that the lookup of `ids` [n] in the tied table gives. The
    /// head's part comes first in backward and the lookup's last: if the next ticket had to wait for both, backward
    /// passes would run one after another.
    void add_rows_later(std::uint64_t ticket, torch::Tensor ids, torch::Tensor rows);
    /// In the table's turn of `ticket`: adds the rows of the tickets up to ticket − kMaxReplicas, which have ended.
    void add_due_rows(std::uint64_t ticket);
    /// Adds all kept rows: at the end of a step.
    void add_all_rows();
    /// Drops them with the step's gradients.
    void drop_rows();

  private:
    struct Rows {
        torch::Tensor ids;
        torch::Tensor rows;
    };
    void add_rows_before(std::uint64_t ticket);

    torch::Tensor tied_table_;
    std::mutex mutex_;  // of everything below
    std::condition_variable changed_;
    std::unordered_map<const void*, std::uint64_t> next_;  // by place: the ticket after the one that left it last
    std::uint64_t ended_ = 0;                              // all smaller tickets have ended
    std::set<std::uint64_t> ended_early_;                  // ended, above ended_
    std::map<std::uint64_t, Rows> late_rows_;              // by ticket
};

/// The micro-batch that the calling thread computes. libtorch runs backward on the CPU in the thread that asks for it.
class MicroBatchScope {
  public:
    /// `number` decides what dropout draws. `order` null: gradients are added at once.
    explicit MicroBatchScope(std::uint64_t number, GradientOrder* order = nullptr, std::uint64_t ticket = 0);
    /// Ends the ticket.
    ~MicroBatchScope();
    MicroBatchScope(const MicroBatchScope&) = delete;
    MicroBatchScope& operator=(const MicroBatchScope&) = delete;

    /// Null: the thread computes none; that is not training.
    [[nodiscard]] static const MicroBatchScope* current() noexcept;

    /// Makes a scope the current one of another thread: a device's backward runs in libtorch's.
    class Resumed {
      public:
        explicit Resumed(const MicroBatchScope* scope) noexcept;
        ~Resumed();
        Resumed(const Resumed&) = delete;
        Resumed& operator=(const Resumed&) = delete;

      private:
        const MicroBatchScope* before_;
    };

    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    [[nodiscard]] GradientOrder* order() const noexcept { return order_; }
    [[nodiscard]] std::uint64_t ticket() const noexcept { return ticket_; }

  private:
    std::uint64_t number_;
    GradientOrder* order_;
    std::uint64_t ticket_;
};

/// The current micro-batch's turn to add to a master's .grad, from construction to destruction.
class GradientTurn {
  public:
    explicit GradientTurn(const torch::Tensor& master);
    ~GradientTurn();
    GradientTurn(const GradientTurn&) = delete;
    GradientTurn& operator=(const GradientTurn&) = delete;

  private:
    const void* place_;
    const MicroBatchScope* scope_;
};

/// .grad of `table` [V, H] += `rows` [n, H] at `ids` [n]. On the CPU, the rows of each id are summed first, as if they
/// were a gradient tensor of their own.
void add_rows(const torch::Tensor& table, const torch::Tensor& ids, const torch::Tensor& rows);

}  // namespace distilld::models
