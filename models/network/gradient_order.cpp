#include "models/network/gradient_order.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace distilld::models {
namespace {

using torch::Tensor;

/// A slot of the thread-local state that libtorch keeps for its callers and does not use.
const c10::DebugInfoKind kSlot = c10::DebugInfoKind::PRODUCER_INFO;

struct CurrentScope final : c10::DebugInfoBase {
    explicit CurrentScope(const MicroBatchScope* current) : scope(current) {}
    const MicroBatchScope* scope;
};

/// Does not wait for the number of distinct ids, which only the device knows. Sorts the ids and adds their rows in the
/// order of arrival, so that the bits are the same each time.
void add_rows_on_device(Tensor& total, const Tensor& table, const Tensor& ids, const Tensor& rows) {
    if (!total.defined()) {
        total = torch::zeros_like(table);
    }
    const c10::List<std::optional<Tensor>> places({std::optional<Tensor>(ids)});
    at::index_put_(total, places, rows, /*accumulate=*/true);
}

RowSums sums_of(const Tensor& ids, const Tensor& rows) {
    const auto [unique, place] = at::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
    return {unique, torch::zeros({unique.size(0), rows.size(1)}, rows.options()).index_add_(0, place, rows)};
}

void add_sums(Tensor& total, const Tensor& table, const RowSums& sums) {
    if (total.defined()) {
        total.index_add_(0, sums.ids, sums.rows);
    } else {
        total = torch::zeros_like(table).index_copy_(0, sums.ids, sums.rows);
    }
}

}  // namespace

void add_sum(Tensor& total, const Tensor& more) {
    if (total.defined() && more.defined()) {
        total.add_(more);
    } else if (more.defined()) {
        total = more;
    }
}

void add_sum(RowSums& total, const RowSums& more) {
    total =
        total.ids.defined() ? sums_of(torch::cat({total.ids, more.ids}), torch::cat({total.rows, more.rows})) : more;
}

void GradientOrder::enter(const void* place, std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::max(next_[place], ended_) >= ticket; });
}

void GradientOrder::leave(const void* place, std::uint64_t ticket) {
    {
        const std::lock_guard lock(mutex_);
        next_[place] = ticket + 1;
    }
    changed_.notify_all();
}

Tensor& GradientOrder::sum_of(const Tensor& master, std::uint32_t group) {
    const std::lock_guard lock(mutex_);
    const auto place =
        gradients_.try_emplace(master.unsafeGetTensorImpl(), Gradient{master, GroupedSum<Tensor, add_sum>(groups_)})
            .first;
    return place->second.sum.of(group);
}

void GradientOrder::end(std::uint64_t ticket) {
    {
        const std::lock_guard lock(mutex_);
        if (ticket >= ended_) {
            ended_early_.insert(ticket);
        }
        while (ended_early_.erase(ended_) > 0) {
            ++ended_;
        }
    }
    changed_.notify_all();
}

void GradientOrder::keep_rows(const Ticket& ticket, const Tensor& ids, const Tensor& rows) {
    const torch::NoGradGuard no_grad;
    const RowSums more = sums_of(ids, rows);
    const GradientTurn turn(this, &ticket);
    add_sum(kept_.of(ticket.group()), more);
}

void GradientOrder::complete() {
    const torch::NoGradGuard no_grad;
    for (auto& [key, gradient] : gradients_) {
        add_sum(gradient.master.mutable_grad(), gradient.sum.take());
    }
    add_kept_rows(kept_.take());
}

std::map<SumNode, Tensor> GradientOrder::take_sums(const Tensor& master) {
    std::unique_lock lock(mutex_);
    const auto found = gradients_.find(master.unsafeGetTensorImpl());
    const bool any = found != gradients_.end();
    lock.unlock();
    return any ? found->second.sum.take_nodes() : std::map<SumNode, Tensor>();
}

void GradientOrder::add_kept_rows(const RowSums& rows) {
    if (rows.ids.defined()) {
        const torch::NoGradGuard no_grad;
        add_sums(tied_table_.mutable_grad(), tied_table_, rows);
    }
}

void GradientOrder::drop() {
    gradients_.clear();
    kept_ = GroupedSum<RowSums, add_sum>(groups_);
}

MicroBatchScope::MicroBatchScope(std::uint64_t number, const Ticket* ticket)
    : number_(number), ticket_(ticket), current_(kSlot, std::make_shared<CurrentScope>(this)) {}

MicroBatchScope::~MicroBatchScope() {
    if (ticket_ != nullptr) {
        ticket_->end();
    }
}

const MicroBatchScope* MicroBatchScope::current() noexcept {
    const auto* current = static_cast<const CurrentScope*>(c10::ThreadLocalDebugInfo::get(kSlot));
    return current != nullptr ? current->scope : nullptr;
}

const Ticket* MicroBatchScope::current_ticket() noexcept {
    const MicroBatchScope* scope = current();
    return scope != nullptr ? scope->ticket_ : nullptr;
}

GradientTurn::GradientTurn(const Tensor& master)
    : GradientTurn(master.unsafeGetTensorImpl(), MicroBatchScope::current_ticket()) {}

GradientTurn::GradientTurn(const void* place, const Ticket* ticket) : place_(place), ticket_(ticket) {
    if (ticket_ != nullptr) {
        ticket_->order().enter(place_, ticket_->number());
    }
}

GradientTurn::~GradientTurn() {
    if (ticket_ != nullptr) {
        ticket_->order().leave(place_, ticket_->number());
    }
}

Tensor& gradient_sum(const Tensor& master) {
    const Ticket* ticket = MicroBatchScope::current_ticket();
    return ticket != nullptr ? ticket->order().sum_of(master, ticket->group()) : master.mutable_grad();
}

void add_rows(Tensor& total, const Tensor& table, const Tensor& ids, const Tensor& rows) {
    const torch::NoGradGuard no_grad;
    if (!table.device().is_cpu()) {
        add_rows_on_device(total, table, ids, rows);
        return;
    }
    add_sums(total, table, sums_of(ids, rows));
}

}  // namespace distilld::models
