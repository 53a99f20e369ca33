// distilld-bench pipeline --student: what a live teacher costs a real student.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <vector>

#include "bench/median.hpp"
#include "bench/pipeline_run.hpp"
#include "bench/real_student.hpp"
#include "bench/scenario.hpp"
#include "bench/virtual_pipeline.hpp"
#include "server/worker/machine/compute_threads.hpp"

namespace distilld::bench {

namespace asio = boost::asio;

namespace {

std::unique_ptr<Student> make_student(const PipelineOptions& options) {
    RealStudentOptions student{.student = options.student, .sequence_length = options.sequence_length};
    student.training.kd_ratio = 1.0;
    student.training.threads = options.threads;
    return make_real_student(student);
}

boost::json::array to_array(const std::vector<double>& values) {
    boost::json::array array;
    for (const double value : values) {
        array.emplace_back(value);
    }
    return array;
}

}  // namespace

boost::json::object run_pipeline_with_student(const PipelineOptions& options) {
    const Scenario& scenario = options.scenario;
    const std::uint64_t count = options.steps * options.micro_batches;
    const LoopbackTeacherOptions teacher_options = loopback_options(options, count);
    asio::thread_pool compute(1);
    auto making = asio::post(compute, asio::use_future([&options] {
                                 set_compute_threads(options.threads);
                                 return make_student(options);
                             }));
    const std::unique_ptr<Student> student = making.get();
    const auto preload = make_loopback_teacher(teacher_options);

    const auto per_batch = [count](Nanos span) { return to_milliseconds(span) / static_cast<double>(count); };
    // Once unmeasured: buffers, thread pools and pages of a first run are not what is compared.
    run_graph(options, *student, compute.get_executor(), *preload, Answers::at_hand, true,
              std::min<std::uint64_t>(options.steps, 2));
    std::vector<double> ratios;
    std::vector<double> filled_ratios;
    std::vector<double> efficiencies;
    std::vector<double> preloaded_ms;
    std::vector<double> live_ms;
    PipelineRun last;
    for (std::uint32_t i = 0; i < options.repeat; ++i) {
        double live = 0;
        double at_hand = 0;
        double live_filled = 0;
        double at_hand_filled = 0;
        // ABBA: the order changes from pair to pair, so that a drift of the machine falls on both.
        for (const bool live_now : {i % 2 == 0, i % 2 != 0}) {
            if (live_now) {
                const auto teacher = make_loopback_teacher(teacher_options);
                last =
                    run_graph(options, *student, compute.get_executor(), *teacher, Answers::live, true, options.steps);
                live = per_batch(last.wall);
                live_filled = per_batch(last.wall - last.fill);
            } else {
                const PipelineRun run = run_graph(options, *student, compute.get_executor(), *preload, Answers::at_hand,
                                                  true, options.steps);
                at_hand = per_batch(run.wall);
                at_hand_filled = per_batch(run.wall - run.fill);
            }
        }
        const Nanos oracle =
            oracle_makespan(teacher_options.latencies, scenario.concurrency, from_milliseconds(at_hand));
        ratios.push_back(live / at_hand);
        filled_ratios.push_back(live_filled / at_hand_filled);
        efficiencies.push_back(to_milliseconds(oracle) / (live * static_cast<double>(count)));
        preloaded_ms.push_back(at_hand);
        live_ms.push_back(live);
    }
    boost::json::object report;
    report["command"] = "pipeline";
    report["student_parameters"] = student->parameter_count();
    report["answers"] = options.json_answers ? "json" : "binary";
    report["top_k"] = options.top_k;
    report["batches"] = count;
    report["teacher_ms"] = to_milliseconds(mean_of(teacher_options.latencies));
    report["concurrency"] = scenario.concurrency;
    report["student_ms_preloaded"] = median(preloaded_ms);
    report["student_ms_live"] = median(live_ms);
    report["step_time_ratio"] = median(ratios);
    report["step_time_ratios"] = to_array(ratios);
    report["step_time_ratio_after_fill"] = median(filled_ratios);
    report["step_time_ratios_after_fill"] = to_array(filled_ratios);
    report["efficiency"] = median(efficiencies);
    report["efficiencies"] = to_array(efficiencies);
    report["stall_fraction"] = last.outcome.last.stall_fraction;
    report["bottleneck"] = last.outcome.last.bottleneck;
    report["threads"] = last.threads;
    report["peak_resident_mb"] = static_cast<double>(peak_resident_bytes()) / 1e6;
    return report;
}

}  // namespace distilld::bench
