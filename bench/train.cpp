// distilld-bench train: what a student makes of targets that are at hand.
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "bench/median.hpp"
#include "bench/op_profile.hpp"
#include "bench/pipeline_run.hpp"
#include "bench/real_student.hpp"
#include "bench/scenario.hpp"
#include "bench/training_work.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "server/worker/machine/compute_threads.hpp"

namespace distilld::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
    return std::chrono::duration<double>(Clock::now() - began).count();
}

/// Made-up targets of one position: `k` tokens, the first the likeliest.
struct Answer {
    std::vector<std::int32_t> ids;
    std::vector<float> values;
};

std::shared_ptr<Answer> make_answer(std::size_t positions, std::uint32_t k, std::uint32_t vocabulary,
                                    SplitMix64& random) {
    auto answer = std::make_shared<Answer>();
    answer->ids.reserve(positions * k);
    answer->values.reserve(positions * k);
    // 0.9 of the mass, by Zipf's law.
    double harmonic = 0;
    for (std::uint32_t i = 1; i <= k; ++i) {
        harmonic += 1.0 / i;
    }
    for (std::size_t position = 0; position < positions; ++position) {
        const std::uint64_t first = random.below(vocabulary);
        const std::uint64_t stride = vocabulary / k;
        for (std::uint32_t i = 0; i < k; ++i) {
            answer->ids.push_back(static_cast<std::int32_t>((first + i * stride) % vocabulary));
            answer->values.push_back(static_cast<float>(std::log(0.9 / ((i + 1) * harmonic))));
        }
    }
    return answer;
}

MicroBatch make_micro_batch(const TrainOptions& options, std::uint32_t vocabulary, SplitMix64& random) {
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = options.batch_size;
    tokens->columns = options.sequence_length;
    const std::size_t positions = std::size_t{options.batch_size} * options.sequence_length;
    for (std::size_t i = 0; i < positions; ++i) {
        tokens->input_ids.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
        tokens->labels.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
    }
    tokens->lengths.assign(options.batch_size, static_cast<std::int32_t>(options.sequence_length));
    tokens->target_tokens = positions;
    MicroBatch batch;
    batch.step_target_tokens = positions * options.micro_batches;
    if (options.top_k > 0) {
        const std::shared_ptr<Answer> answer = make_answer(positions, options.top_k, vocabulary, random);
        TeacherTargets& targets = batch.targets.emplace();
        targets.rows = tokens->rows;
        targets.columns = tokens->columns;
        targets.width = options.top_k;
        targets.vocabulary = vocabulary;
        targets.ids = {ElementType::i32, std::as_bytes(std::span(answer->ids))};
        targets.values = {ElementType::f32, std::as_bytes(std::span(answer->values))};
        targets.owner = answer;
    }
    batch.tokens = std::move(tokens);
    return batch;
}

models::ModelConfig config_of(const std::string& student) {
    Result<models::ModelConfig> config = student.starts_with("{")
                                             ? models::parse_model_config(student, {"", "--student"})
                                             : models::read_model_config(student);
    if (!config) {
        throw UsageError("--student: " + config.error().message);
    }
    return std::move(*config);
}

/// What one round took.
struct Round {
    double whole = 0;
    double training = 0;  ///< forward, loss and backward of it
};

/// Forward, loss and backward of a micro-batch.
double seconds_of_training(Student& student, StagedBatch& staged) {
    const Clock::time_point trained = Clock::now();
    const MicroBatchStats stats = student.train(staged);
    return seconds_since(trained) - stats.update_seconds;
}

/// Trains on the step's staged micro-batches with a thread for each replica; the time in train() less updates, of all.
double train_side_by_side(Student& student, const std::vector<std::unique_ptr<StagedBatch>>& staged,
                          std::uint32_t replicas) {
    std::vector<double> seconds(replicas);
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t replica = 0; replica < replicas; ++replica) {
            threads.emplace_back([&, replica] {
                set_compute_threads(1);
                for (std::size_t i = replica; i < staged.size(); i += replicas) {
                    seconds[replica] += seconds_of_training(student, *staged[i]);
                }
            });
        }
    }
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) / replicas;
}

Round run_steps(Student& student, const std::vector<MicroBatch>& batches, std::uint32_t steps,
                std::uint32_t replicas = 1) {
    constexpr double kLearningRate = 1e-4;
    Round round;
    const Clock::time_point began = Clock::now();
    for (std::uint32_t step = 0; step < steps; ++step) {
        if (replicas > 1) {
            std::vector<std::unique_ptr<StagedBatch>> staged;
            for (const MicroBatch& batch : batches) {
                staged.push_back(student.stage(batch));
            }
            round.training += train_side_by_side(student, staged, replicas);
        } else {
            for (const MicroBatch& batch : batches) {
                const std::unique_ptr<StagedBatch> staged = student.stage(batch);
                round.training += seconds_of_training(student, *staged);
            }
        }
        if (!student.finish_step(kLearningRate).finite) {
            throw std::runtime_error("a step was not finite");
        }
    }
    while (student.apply_one_pending_update()) {
    }
    round.whole = seconds_since(began);
    return round;
}

/// A row per operation with the figures of one micro-batch and its part of the step, most time first.
boost::json::array rows_of(const OperationProfile& profile, double micro_batches) {
    boost::json::array rows;
    const auto add = [&](const std::string& name, double calls, double seconds, double bytes) {
        rows.push_back({{"operation", name},
                        {"calls", calls / micro_batches},
                        {"milliseconds", seconds / micro_batches * 1e3},
                        {"share", seconds / profile.seconds},
                        {"megabytes", bytes / micro_batches / 1e6},
                        {"gigabytes_per_second", seconds > 0 ? bytes / seconds / 1e9 : 0}});
    };
    double recorded = 0;
    for (const OperationTotals& totals : profile.operations) {
        add(totals.name, static_cast<double>(totals.calls), totals.seconds, totals.bytes);
        recorded += totals.seconds;
    }
    add("outside of operations", 0, profile.seconds - recorded, 0);
    return rows;
}

std::uint32_t replicas_of(const TrainOptions& options, const Student& student, std::uint32_t threads) {
    ReplicaWish wish;
    wish.threads = threads;
    wish.micro_batches = options.micro_batches;
    wish.parameters = student.network_parameter_count();
    wish.activation_bytes = student.activation_bytes(std::uint64_t{options.batch_size} * options.sequence_length);
    wish.available_bytes = std::numeric_limits<std::uint64_t>::max();
    return options.replicas > 0 ? options.replicas : automatic_replicas(wish);
}

}  // namespace

boost::json::object run_train(const TrainOptions& options) {
    const std::uint32_t threads = set_compute_threads(options.threads);
    const Dtype dtype = value_of(kDtypeNames, options.dtype).value();
    const std::string device = resolved_device(options.device);
    RealStudentOptions wanted{.student = options.student,
                              .dtype = dtype,
                              .device = device,
                              .with_teacher = options.top_k > 0,
                              .sequence_length = options.sequence_length};
    wanted.training.kd_ratio = options.top_k > 0 ? 1.0 : 0.0;
    wanted.training.threads = threads;
    const std::unique_ptr<Student> student = make_real_student(wanted);
    const std::uint32_t vocabulary = student->vocabulary_size();
    if (options.top_k > vocabulary) {
        throw UsageError("--top-k: the student has " + std::to_string(vocabulary) + " tokens");
    }
    SplitMix64 random(1);
    std::vector<MicroBatch> batches;
    for (std::uint32_t i = 0; i < options.micro_batches; ++i) {
        batches.push_back(make_micro_batch(options, vocabulary, random));
    }
    const std::uint32_t replicas = device == "cpu" ? replicas_of(options, *student, threads) : 1;
    run_steps(*student, batches, options.warm_up, replicas);

    const double flops = training_flops_per_token(config_of(options.student), options.sequence_length);
    const double positions = static_cast<double>(options.batch_size) * options.sequence_length;
    const double count = static_cast<double>(options.steps) * options.micro_batches;
    constexpr double kGemmSeconds = 0.2;
    const OperationProfile profile = profile_operations([&] { run_steps(*student, batches, 1); });
    std::vector<double> rates;
    std::vector<double> micro_batch_ms;
    std::vector<double> gemm_rates;
    std::vector<double> product_rates;
    std::vector<double> product_shares;
    std::vector<double> shares;
    for (std::uint32_t i = 0; i < options.repeat; ++i) {
        gemm_rates.push_back(measure_gemm_rate(dtype, device, kGemmSeconds));
        const Round round = run_steps(*student, batches, options.steps, replicas);
        rates.push_back(positions * count / round.whole);
        micro_batch_ms.push_back(round.training / count * 1e3);
        shares.push_back(rates.back() * flops / gemm_rates.back());
        const double product_seconds = measure_products(profile.products);
        product_rates.push_back(operations_of(profile.products) / product_seconds);
        product_shares.push_back(product_seconds * options.steps / round.whole);
    }
    boost::json::object report;
    report["command"] = "train";
    report["student_parameters"] = student->parameter_count();
    report["dtype"] = resolved_dtype_name(dtype, device);
    report["device"] = device;
    report["threads"] = threads;
    report["replicas"] = replicas;
    report["batch_size"] = options.batch_size;
    report["sequence_length"] = options.sequence_length;
    report["top_k"] = options.top_k;
    report["tokens_per_second"] = median(rates);
    report["tokens_per_second_slowest"] = *std::ranges::min_element(rates);
    report["tokens_per_second_fastest"] = *std::ranges::max_element(rates);
    report["milliseconds_per_micro_batch"] = median(micro_batch_ms);
    report["gigaflops_per_second_of_gemm"] = median(gemm_rates) / 1e9;
    report["share_of_gemm_rate"] = median(shares);
    report["gigaflops_per_second_of_products"] = median(product_rates) / 1e9;
    report["share_of_product_rate"] = median(product_shares);
    if (options.by_operation) {
        report["operations"] = rows_of(profile, options.micro_batches);
    }
    report["peak_resident_mb"] = static_cast<double>(peak_resident_bytes()) / 1e6;
    return report;
}

}  // namespace distilld::bench
