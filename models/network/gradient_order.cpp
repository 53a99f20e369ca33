#include "models/network/gradient_order.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace distilld::models {
namespace {

using torch::Tensor;

thread_local const MicroBatchScope* current_scope = nullptr;

/// Does not wait for the number of distinct ids, which only the device knows. Sorts the ids and adds their rows in the
/// order of arrival, so that the bits are the same each time.
void add_rows_on_device(const Tensor& table, const Tensor& ids, const Tensor& rows) {
    Tensor& total = table.mutable_grad();
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

void add_sums(const Tensor& table, const RowSums& sums) {
    Tensor& total = table.mutable_grad();
    if (total.defined()) {
        total.index_add_(0, sums.ids, sums.rows);
    } else {
        total = torch::zeros_like(table).index_copy_(0, sums.ids, sums.rows);
    }
}

}  // namespace

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
    RowSums more = sums_of(ids, rows);
    const GradientTurn turn(this, &ticket);
    kept_ = kept_.ids.defined() ? sums_of(torch::cat({kept_.ids, more.ids}), torch::cat({kept_.rows, more.rows}))
                                : std::move(more);
}

void GradientOrder::add_kept_rows() {
    if (kept_.ids.defined()) {
        add_sums(tied_table_, std::exchange(kept_, {}));
    }
}

MicroBatchScope::MicroBatchScope(std::uint64_t number, const Ticket* ticket) : number_(number), ticket_(ticket) {
    current_scope = this;
}

MicroBatchScope::~MicroBatchScope() {
    current_scope = nullptr;
    if (ticket_ != nullptr) {
        ticket_->end();
    }
}

const MicroBatchScope* MicroBatchScope::current() noexcept {
    return current_scope;
}

const Ticket* MicroBatchScope::current_ticket() noexcept {
    return current_scope != nullptr ? current_scope->ticket_ : nullptr;
}

MicroBatchScope::Resumed::Resumed(const MicroBatchScope* scope) noexcept
    : before_(std::exchange(current_scope, scope)) {}

MicroBatchScope::Resumed::~Resumed() {
    current_scope = before_;
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

void add_rows(const Tensor& table, const Tensor& ids, const Tensor& rows) {
    const torch::NoGradGuard no_grad;
    if (!table.device().is_cpu()) {
        add_rows_on_device(table, ids, rows);
        return;
    }
    add_sums(table, sums_of(ids, rows));
}

}  // namespace distilld::models
