#include "models/network/gradient_order.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace distilld::models {
namespace {

using torch::Tensor;

thread_local const MicroBatchScope* current_scope = nullptr;

const void* place_of(const Tensor& master) {
    return master.unsafeGetTensorImpl();
}

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
        ended_early_.insert(ticket);
        while (ended_early_.erase(ended_) > 0) {
            ++ended_;
        }
    }
    changed_.notify_all();
}

void GradientOrder::add_rows_later(std::uint64_t ticket, Tensor ids, Tensor rows) {
    const std::lock_guard lock(mutex_);
    late_rows_[ticket] = {std::move(ids), std::move(rows)};
}

void GradientOrder::add_due_rows(std::uint64_t ticket) {
    if (ticket >= kMaxReplicas) {
        add_rows_before(ticket - kMaxReplicas + 1);
    }
}

void GradientOrder::add_all_rows() {
    add_rows_before(std::numeric_limits<std::uint64_t>::max());
}

void GradientOrder::drop_rows() {
    const std::lock_guard lock(mutex_);
    late_rows_.clear();
}

void GradientOrder::add_rows_before(std::uint64_t ticket) {
    for (;;) {
        Rows due;
        {
            const std::lock_guard lock(mutex_);
            if (late_rows_.empty() || late_rows_.begin()->first >= ticket) {
                return;
            }
            due = std::move(late_rows_.extract(late_rows_.begin()).mapped());
        }
        add_rows(tied_table_, due.ids, due.rows);
    }
}

MicroBatchScope::MicroBatchScope(std::uint64_t number, GradientOrder* order, std::uint64_t ticket)
    : number_(number), order_(order), ticket_(ticket) {
    current_scope = this;
}

MicroBatchScope::~MicroBatchScope() {
    current_scope = nullptr;
    if (order_ != nullptr) {
        order_->end(ticket_);
    }
}

const MicroBatchScope* MicroBatchScope::current() noexcept {
    return current_scope;
}

MicroBatchScope::Resumed::Resumed(const MicroBatchScope* scope) noexcept
    : before_(std::exchange(current_scope, scope)) {}

MicroBatchScope::Resumed::~Resumed() {
    current_scope = before_;
}

GradientTurn::GradientTurn(const Tensor& master) : place_(place_of(master)), scope_(current_scope) {
    if (scope_ != nullptr && scope_->order() != nullptr) {
        scope_->order()->enter(place_, scope_->ticket());
    }
}

GradientTurn::~GradientTurn() {
    if (scope_ != nullptr && scope_->order() != nullptr) {
        scope_->order()->leave(place_, scope_->ticket());
    }
}

void add_rows(const Tensor& table, const Tensor& ids, const Tensor& rows) {
    const torch::NoGradGuard no_grad;
    if (!table.device().is_cpu()) {
        add_rows_on_device(table, ids, rows);
        return;
    }
    const auto [unique, place] = at::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
    const Tensor sums = torch::zeros({unique.size(0), rows.size(1)}, rows.options()).index_add_(0, place, rows);
    Tensor& total = table.mutable_grad();
    if (total.defined()) {
        total.index_add_(0, unique, sums);
    } else {
        total = torch::zeros_like(table).index_copy_(0, unique, sums);
    }
}

}  // namespace distilld::models
