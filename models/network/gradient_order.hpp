#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "models/network/grouped_sum.hpp"

/// Several micro-batches in forward and backward at once, each on a thread of its own: their gradients are added in
/// their order to the sum that they share, so that its bits do not depend on which thread is faster.
namespace distilld::models {

/// Rows of a gradient [V, H] in which most rows are 0.
struct RowSums {
    torch::Tensor ids;   ///< [u] int64, ascending; undefined: no rows
    torch::Tensor rows;  ///< [u, H]
};

void add_sum(torch::Tensor& total, const torch::Tensor& more);
void add_sum(RowSums& total, const RowSums& more);

class Ticket;

/// Whose turn it is to add to each gradient of a step, and the gradients until the step ends. A micro-batch's ticket is
/// its place in the order, counted from 0 over all steps. Thread-safe, but for complete() and drop().
class GradientOrder {
  public:
    /// `tied_table`: the table of a network whose head is its embedding; undefined: it has none. `groups`: of the
    /// micro-batches that tickets stand for.
    explicit GradientOrder(torch::Tensor tied_table = {}, GroupRange groups = {})
        : tied_table_(std::move(tied_table)), groups_(groups), kept_(groups) {}

    /// Waits until every smaller ticket has left `place` or ended. The place of a gradient is its master's TensorImpl.
    void enter(const void* place, std::uint64_t ticket);
    void leave(const void* place, std::uint64_t ticket);
    /// The sum of the group's gradients of `master`, for whoever has the turn.
    [[nodiscard]] torch::Tensor& sum_of(const torch::Tensor& master, std::uint32_t group);
    /// The ticket adds nothing any more, whether or not it has added everything. Once or more often.
    void end(std::uint64_t ticket);

    /// Whether the rows of a lookup in `table` are kept.
    [[nodiscard]] bool keeps_rows_of(const torch::Tensor& table) const {
        return table.defined() && tied_table_.is_same(table) && table.device().is_cpu();
    }

    /// Keeps `rows` [n, H], the part of the ticket's gradient that the lookup of `ids` [n] in the tied table gives,
    /// summed by id in the order of the tickets. The head's part comes first in backward and the lookup's last: if the
    /// next ticket had to wait for both, backward passes would run one after another. On the CPU only.
    void keep_rows(const Ticket& ticket, const torch::Tensor& ids, const torch::Tensor& rows);

    /// Ends a step: the sum of each gradient becomes its master's .grad.
    void complete();
    /// The same for one of several ranks: the sums of its part of the groups, which are dropped here. The master's sums
    /// may be taken while those of others are added to.
    [[nodiscard]] std::map<SumNode, torch::Tensor> take_sums(const torch::Tensor& master);
    [[nodiscard]] std::map<SumNode, RowSums> take_kept_rows() { return kept_.take_nodes(); }
    /// Adds rows of the tied table to its .grad.
    void add_kept_rows(const RowSums& rows);
    [[nodiscard]] const torch::Tensor& tied_table() const noexcept { return tied_table_; }
    /// Drops the step's gradients.
    void drop();

  private:
    struct Gradient {
        torch::Tensor master;
        GroupedSum<torch::Tensor, add_sum> sum;  ///< used in turns
    };

    torch::Tensor tied_table_;
    GroupRange groups_;
    std::mutex mutex_;  // of everything below
    std::condition_variable changed_;
    std::unordered_map<const void*, std::uint64_t> next_;  // by place: the ticket after the one that left it last
    std::uint64_t ended_ = 0;                              // all smaller tickets have ended
    std::set<std::uint64_t> ended_early_;                  // ended, above ended_
    std::unordered_map<const void*, Gradient> gradients_;  // by master
    GroupedSum<RowSums, add_sum> kept_;                    // used in turns, with `this` as the place
};

/// The place of a micro-batch in an order, until the ticket ends or is destroyed: what is staged and never trained
/// holds up no other.
class Ticket {
  public:
    /// `group`: of the step's micro-batches, whose gradients are summed first (GroupedSum).
    Ticket(std::shared_ptr<GradientOrder> order, std::uint64_t number, std::uint32_t group)
        : order_(std::move(order)), number_(number), group_(group) {}
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() { end(); }

    [[nodiscard]] GradientOrder& order() const noexcept { return *order_; }
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    [[nodiscard]] std::uint32_t group() const noexcept { return group_; }
    void end() const { order_->end(number_); }

  private:
    std::shared_ptr<GradientOrder> order_;
    std::uint64_t number_;
    std::uint32_t group_;
};

/// The micro-batch that the calling thread computes, and with it the threads in which libtorch runs its backward pass:
/// a device's operations run in a thread of libtorch, which inherits the caller's thread-local state.
class MicroBatchScope {
  public:
    /// `number` decides what dropout draws. `ticket` null: gradients are added at once.
    explicit MicroBatchScope(std::uint64_t number, const Ticket* ticket = nullptr);
    /// Ends the ticket.
    ~MicroBatchScope();
    MicroBatchScope(const MicroBatchScope&) = delete;
    MicroBatchScope& operator=(const MicroBatchScope&) = delete;

    /// Null: the thread computes none; that is not training.
    [[nodiscard]] static const MicroBatchScope* current() noexcept;
    /// Of the current micro-batch. Null: gradients are added at once.
    [[nodiscard]] static const Ticket* current_ticket() noexcept;

    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

  private:
    std::uint64_t number_;
    const Ticket* ticket_;
    c10::DebugInfoGuard current_;
};

/// A micro-batch's turn to add to a gradient, from construction to destruction.
class GradientTurn {
  public:
    /// The current micro-batch's turn to add to the gradient of a master.
    explicit GradientTurn(const torch::Tensor& master);
    /// `ticket` null: there is no order, and nothing to wait for.
    GradientTurn(const void* place, const Ticket* ticket);
    ~GradientTurn();
    GradientTurn(const GradientTurn&) = delete;
    GradientTurn& operator=(const GradientTurn&) = delete;

  private:
    const void* place_;
    const Ticket* ticket_;  // null: nobody else adds
};

/// What the current micro-batch adds its gradient of `master` to, in its turn; undefined counts as zeros. Without a
/// ticket, the master's .grad.
[[nodiscard]] torch::Tensor& gradient_sum(const torch::Tensor& master);

/// `total`, a gradient of `table` [V, H], += `rows` [n, H] at `ids` [n]. On the CPU, the rows of each id are summed
/// first, as if they were a gradient tensor of their own.
void add_rows(torch::Tensor& total, const torch::Tensor& table, const torch::Tensor& ids, const torch::Tensor& rows);

}  // namespace distilld::models
