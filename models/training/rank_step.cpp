#include "models/training/rank_step.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "base/scope_exit.hpp"
#include "models/optimizers/gradient_norm.hpp"
#include "models/training/student_snapshot.hpp"
#include "pipeline/core/ranks/rank_figures.hpp"

namespace distilld::models {

namespace {

using torch::Tensor;

/// What rank 0 tells the others, if they share the optimizer's state.
enum class Word : std::uint8_t { exchange, state };

/// What a rank tells of its step: for each micro-batch with targets its group and losses, and for each master whether
/// it has a gradient.
struct Report {
    struct Losses {
        std::uint64_t group = 0;
        std::array<double, 3> values{};  ///< as in StepLosses
    };
    std::vector<Losses> losses;
    std::vector<std::uint8_t> used;

    [[nodiscard]] std::string text() const {
        std::string text(used.begin(), used.end());
        const auto bytes = std::as_bytes(std::span(losses));
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return text;
    }

    static Report read(const std::string& text, std::size_t masters) {
        if (text.size() < masters || (text.size() - masters) % sizeof(Losses) != 0) {
            throw std::runtime_error("another rank trains another network: its report has " +
                                     std::to_string(text.size()) + " bytes");
        }
        Report report;
        report.used.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(masters));
        report.losses.resize((text.size() - masters) / sizeof(Losses));
        if (!report.losses.empty()) {
            std::memcpy(report.losses.data(), text.data() + masters, text.size() - masters);
        }
        return report;
    }
};

/// Owners of the groups: the next one in the order of backward goes to whoever has least.
std::vector<std::uint32_t> owners_of(std::span<const ParameterGroup> groups, std::uint32_t ranks) {
    std::vector<std::uint64_t> held(ranks, 0);
    std::vector<std::uint32_t> owners(groups.size(), 0);
    for (std::size_t i = groups.size(); i-- > 0;) {
        const auto least = std::ranges::min_element(held);
        *least += trainable_count(groups.subspan(i, 1));
        owners[i] = static_cast<std::uint32_t>(least - held.begin());
    }
    return owners;
}

}  // namespace

RankStep::RankStep(RankExchange& ranks, const TrainingSpec& training, std::span<const ParameterGroup> groups,
                   torch::ScalarType compute, std::shared_ptr<GradientOrder> order)
    : ranks_(ranks),
      groups_(training.gradient_groups),
      sharded_(training.shard_optimizer),
      compute_(compute),
      owners_(owners_of(groups, ranks.count())),
      masters_(masters_of(groups)),
      order_(std::move(order)),
      gradients_(make_gradients(groups_)),
      weights_(groups.size()) {}

std::vector<RankStep::Master> RankStep::masters_of(std::span<const ParameterGroup> groups) {
    std::vector<Master> masters;
    for (std::size_t group = 0; group < groups.size(); ++group) {
        for (const Parameter& parameter : groups[group].parameters) {
            if (parameter.trainable) {
                masters.push_back({parameter.master, group, parameter, groups[group].name == "embedding"});
            }
        }
    }
    return masters;
}

RankGradients RankStep::make_gradients(std::uint32_t groups) const {
    std::vector<Tensor> tensors;
    std::vector<BucketedMaster> backward;
    for (const Master& master : masters_) {
        backward.push_back({tensors.size(), master.tensor.numel(), sharded_ ? owners_[master.group] : 0});
        tensors.push_back(master.tensor);
    }
    // Backward begins with the head, and with it the table that it may share with the embedding; on a device, the
    // embedding adds to the table, too, at the end.
    std::ranges::reverse(backward);
    std::ranges::stable_partition(
        backward, [&](const BucketedMaster& one) { return order_->keeps_rows_of(tensors[one.master]); });
    return {ranks_, groups, std::move(tensors), backward, !sharded_, order_};
}

RankStep::~RankStep() {
    if (done_.valid()) {
        ranks_.abandon();
        begun_.reset();
        done_.wait();
    }
}

void RankStep::begin(std::vector<bool> present, std::uint64_t last) {
    launch();
    std::exchange(begun_, std::nullopt)->set_value({std::move(present), last});
}

void RankStep::launch() {
    if (done_.valid()) {
        return;
    }
    served_ = false;
    begun_.emplace();
    done_ = std::async(std::launch::async, [this, begun = begun_->get_future()]() mutable {
        const torch::NoGradGuard no_grad;
        const ScopeExit nothing_more([this] {
            served_ = true;
            served_.notify_all();
        });
        const bool leads = ranks_.rank() == 0;
        Word word = Word::exchange;
        const std::span one(&word, 1);
        while (sharded_ && !leads) {
            ranks_.receive(std::as_writable_bytes(one), 0);
            if (word == Word::exchange) {
                break;
            }
            send_state();
            served_ = true;
            served_.notify_all();
        }
        served_ = true;
        served_.notify_all();
        const RankGradients::Begun mine = begun.get();
        for (std::uint32_t other = 1; sharded_ && leads && other < ranks_.count(); ++other) {
            ranks_.send(std::as_bytes(one), other);
        }
        return gradients_.exchange(mine);
    });
}

bool RankStep::complete(StepLosses& losses) {
    const torch::NoGradGuard no_grad;
    Report mine;
    for (const StepLosses::OfMicroBatch& one : losses.take()) {
        Report::Losses read{one.group, {}};
        const Tensor values = one.sums.to(torch::kCPU);
        std::memcpy(read.values.data(), values.const_data_ptr(), sizeof(read.values));
        mine.losses.push_back(read);
    }
    launch();
    if (begun_) {
        RankGradients::Begun begun{std::vector<bool>(groups_, false), std::nullopt};
        for (const Report::Losses& one : mine.losses) {
            begun.present.at(one.group) = true;
        }
        std::exchange(begun_, std::nullopt)->set_value(std::move(begun));
    }
    // Whoever is last waits only for bytes.
    const auto began = std::chrono::steady_clock::now();
    RankGradients::Exchanged found = done_.get();
    waited_ += std::chrono::steady_clock::now() - began;
    mine.used.assign(found.used.begin(), found.used.end());
    used_.assign(masters_.size(), false);
    std::uint64_t micro_batch = 0;
    for (const std::string& text : ranks_.gather(mine.text())) {
        const Report report = Report::read(text, masters_.size());
        for (std::size_t master = 0; master < masters_.size(); ++master) {
            used_[master] = used_[master] || report.used[master] != 0;
        }
        for (const Report::Losses& one : report.losses) {
            losses.add(micro_batch++, {static_cast<std::uint32_t>(one.group),
                                       torch::tensor(torch::ArrayRef(one.values), torch::kDouble)});
        }
    }
    for (std::size_t master = 0; master < masters_.size(); ++master) {
        if (used_[master]) {
            masters_[master].tensor.mutable_grad() = std::move(found.gradients[master]);
        }
    }
    const Tensor& tied = order_->tied_table();
    if (!found.plan.empty && order_->keeps_rows_of(tied)) {
        const RowSums total = gradients_.sum_kept_rows(found);
        if (tied.grad().defined()) {
            order_->add_kept_rows(total);
        }
    }
    order_->drop();
    return std::ranges::find(used_, true) != used_.end();
}

Tensor RankStep::gradient_norm() {
    std::vector<Tensor> gradients;
    std::vector<double> squares(masters_.size(), 0);
    std::vector<std::size_t> masters;  // of the gradients
    for (std::size_t master = 0; master < masters_.size(); ++master) {
        if (const Tensor& gradient = masters_[master].tensor.grad(); gradient.defined()) {
            gradients.push_back(gradient);
            masters.push_back(master);
        }
    }
    if (!sharded_) {
        return l2_norm_scalar(gradients).to(torch::kCPU);
    }
    const std::vector<double> own = squared_norms(gradients, at::get_num_threads());
    for (std::size_t i = 0; i < own.size(); ++i) {
        squares[masters[i]] = own[i];
    }
    const auto bytes = std::as_bytes(std::span(squares));
    // Each is another rank's or 0.
    std::vector<double> all(masters_.size(), 0);
    for (const std::string& text :
         ranks_.gather(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))) {
        if (text.size() != bytes.size()) {
            throw std::runtime_error("another rank trains another network: it has " +
                                     std::to_string(text.size() / sizeof(double)) + " gradients");
        }
        for (std::size_t master = 0; master < masters_.size(); ++master) {
            double square = 0;
            std::memcpy(&square, text.data() + master * sizeof(double), sizeof(double));
            all[master] += square;
        }
    }
    if (const torch::Device device = masters_.front().tensor.device(); !device.is_cpu()) {
        std::vector<double> of_gradients;  // what l2_norm_scalar() sums on one rank
        for (std::size_t master = 0; master < masters_.size(); ++master) {
            if (used_[master]) {
                of_gradients.push_back(all[master]);
            }
        }
        return torch::tensor(of_gradients, torch::kDouble).to(device).sum().sqrt().to(torch::kCPU);
    }
    return torch::scalar_tensor(std::sqrt(std::accumulate(all.begin(), all.end(), 0.0)), torch::kDouble);
}

void RankStep::agree(StepStats& stats) {
    static_assert(std::is_trivially_copyable_v<StepStats>);
    ranks_.broadcast(std::as_writable_bytes(std::span(&stats, 1)));
}

void RankStep::share_weights() {
    if (!sharded_ || !optimizer_->pending()) {
        return;
    }
    std::size_t master = 0;
    for (std::size_t group = 0; group < owners_.size(); ++group) {
        optimizer_->apply(group);
        for (; master < masters_.size() && masters_[master].group == group; ++master) {
            const Tensor tensor = shared_weight(masters_[master]);
            const bool on_cpu = tensor.device().is_cpu();
            if (owners_[group] != ranks_.rank()) {
                const Tensor host = on_cpu ? tensor : torch::empty(tensor.sizes(), tensor.scalar_type());
                weights_[group].push_back(
                    {ranks_.begin_receive(writable_bytes_of(host), owners_[group]), host, on_cpu ? Tensor() : tensor});
                continue;
            }
            const Tensor host = tensor.detach().to(torch::kCPU);
            for (std::uint32_t other = 0; other < ranks_.count(); ++other) {
                if (other != ranks_.rank()) {
                    weights_[group].push_back({ranks_.begin_send(bytes_of(host), other), host, Tensor()});
                }
            }
        }
    }
}

bool RankStep::leaves_to_owner(const Master& master) const {
    const Parameter& parameter = master.parameter;
    // Norms and tables read their masters. An export in a third dtype rounds the master, not the copy.
    return sharded_ && compute_ != master.tensor.scalar_type() && master.tensor.dim() >= 2 && !master.in_table_group &&
           (parameter.saved == compute_ || parameter.saved == master.tensor.scalar_type());
}

Tensor RankStep::shared_weight(const Master& master) const {
    if (!leaves_to_owner(master)) {
        return master.tensor;
    }
    return owns(master.group) ? compute_weight(master.parameter, compute_) : drop_master(master.parameter, compute_);
}

void RankStep::arrive(std::size_t group) {
    for (const Master& master : masters_) {
        if (master.group == group && leaves_to_owner(master) && !owns(group)) {
            drop_master(master.parameter, compute_);
        }
    }
    receive_weights(group);
}

void RankStep::receive_weights(std::size_t group) {
    if (weights_[group].empty()) {
        return;
    }
    const torch::NoGradGuard no_grad;
    for (const MovingWeight& moving : std::exchange(weights_[group], {})) {
        moving.transfer->wait();
        if (moving.into.defined()) {
            moving.into.detach().copy_(moving.host);
        }
    }
    for (const Master& master : masters_) {
        if (master.group == group && owners_[group] != ranks_.rank()) {
            master.tensor.unsafeGetTensorImpl()->bump_version();  // see compute_weight()
        }
    }
}

void RankStep::arrive_all() {
    for (std::size_t group = 0; group < weights_.size(); ++group) {
        receive_weights(group);
    }
}

StepOfAll RankStep::sum(const StepSums& mine, RankCounters figures) {
    static_assert(std::is_trivially_copyable_v<StepSums>);
    // The figures were taken before this step's wait, and the optimizer stage counts its earlier ones as work.
    const double told_before = std::exchange(told_wait_, std::chrono::duration<double>(waited_).count());
    figures.wait_ranks_seconds = told_wait_;
    figures.busy_seconds[std::string(stage_name(Stage::optimizer))] -= told_before;
    const std::string told = std::string(reinterpret_cast<const char*>(&mine), sizeof(mine));
    StepOfAll all;
    for (const std::string& text : ranks_.gather(told + write_rank_figures(figures))) {
        StepSums one;
        Result<RankCounters> of_rank = read_rank_figures(text.substr(std::min(text.size(), sizeof(one))));
        if (!of_rank) {
            throw std::runtime_error(of_rank.error().message);
        }
        std::memcpy(&one, text.data(), sizeof(one));
        all.sums.target_tokens += one.target_tokens;
        all.sums.positions += one.positions;
        all.sums.padding += one.padding;
        of_rank->rank = static_cast<std::uint32_t>(all.ranks.size());
        all.ranks.push_back(std::move(*of_rank));
    }
    if (sharded_ && ranks_.rank() != 0) {
        launch();
    }
    return all;
}

RankStep::Collected RankStep::collect_state() {
    const Word word = Word::state;
    for (std::uint32_t other = 1; sharded_ && ranks_.rank() == 0 && other < ranks_.count(); ++other) {
        ranks_.send(std::as_bytes(std::span(&word, 1)), other);
    }
    Collected all;
    const auto collect = [&](std::size_t group, const Tensor& like) {
        if (owns(group)) {
            return host_copy(like);
        }
        Tensor received = torch::empty(like.sizes(), like.scalar_type());
        ranks_.receive(writable_bytes_of(received), owners_[group]);
        return received;
    };
    for (const Master& master : masters_) {
        if (leaves_to_owner(master) && !owns(master.group)) {
            all.masters.push_back({master.parameter.name, collect(master.group, master.tensor)});
        }
    }
    for (std::size_t group = 0; group < owners_.size(); ++group) {
        for (NamedTensor& state : optimizer_->state_of(group)) {
            all.optimizer.push_back({std::move(state.name), collect(group, state.tensor)});
        }
    }
    return all;
}

void RankStep::send_state() {
    const auto send = [this](const Tensor& tensor) {
        const Tensor host = tensor.detach().to(torch::kCPU);
        ranks_.send(bytes_of(host), 0);
    };
    for (const Master& master : masters_) {
        if (leaves_to_owner(master) && owns(master.group)) {
            send(master.tensor);
        }
    }
    for (std::size_t group = 0; group < owners_.size(); ++group) {
        for (const NamedTensor& state : optimizer_->state_of(group)) {
            if (owns(group)) {
                send(state.tensor);
            }
        }
    }
}

void RankStep::attend_last_snapshot() noexcept {
    if (sharded_ && ranks_.rank() != 0) {
        launch();
        served_.wait(false);
    }
}

}  // namespace distilld::models
