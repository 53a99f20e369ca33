// distilld-bench: scenario benchmarks; each prints one JSON object.
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/json_text.hpp"
#include "bench/scenario.hpp"
#include "bench/store_formats.hpp"
#include "distilld_version.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "server/supervisor/worker_environment.hpp"

namespace {

/// Restarts the program if its environment lacks settings that workers get: libraries have already read it.
void take_environment_of_workers(char** argv) {
    const std::vector<std::string> missing = distilld::worker_environment();
    for (const std::string& setting : missing) {
        const auto name_size = setting.find('=');
        ::setenv(setting.substr(0, name_size).c_str(), setting.c_str() + name_size + 1, 1);
    }
    if (!missing.empty()) {
        ::execv("/proc/self/exe", argv);  // without /proc it fails, and the settings have no effect
    }
}

}  // namespace

int main(int argc, char** argv) {
    using namespace distilld::bench;
    CLI::App app{"distilld-bench: scenario benchmarks that print JSON", "distilld-bench"};
    app.set_version_flag("--version", std::string("distilld-bench ") + distilld::kVersion);
    app.require_subcommand(1);

    SimulateOptions simulate;
    CLI::App* simulate_command = app.add_subcommand("simulate", "the scheduler under a virtual clock");
    add_scenario_options(*simulate_command, simulate.scenario);
    simulate_command->add_option("--batches", simulate.batches, "N: micro-batches")->check(CLI::Range(1, 10'000'000));
    simulate_command->add_option("--stall-rate", simulate.stall_rate, "share of first requests that stall")
        ->check(CLI::Range(0.0, 1.0));
    simulate_command->add_option("--stall-factor", simulate.stall_factor, "how many mean latencies a stall takes")
        ->check(CLI::PositiveNumber);

    PipelineOptions pipeline;
    CLI::App* pipeline_command = app.add_subcommand("pipeline", "the stage graph against a real teacher on loopback");
    add_scenario_options(*pipeline_command, pipeline.scenario);
    pipeline_command->add_option("--micro-batches", pipeline.micro_batches, "of a step")->check(CLI::Range(1, 65536));
    pipeline_command->add_option("--steps", pipeline.steps, "optimizer steps")->check(CLI::Range(1, 1'000'000));
    pipeline_command->add_option("--sequential-steps", pipeline.sequential_steps,
                                 "steps of the sequential comparison; 0 = a quarter");
    pipeline_command->add_option("--batch-size", pipeline.batch_size, "sequences of a micro-batch")
        ->check(CLI::Range(1, 4096));
    pipeline_command->add_option("--sequence-length", pipeline.sequence_length, "positions of a sequence")
        ->check(CLI::Range(4, 65536));
    pipeline_command->add_option("--top-k", pipeline.top_k, "entries of a position")->check(CLI::Range(1, 4096));
    std::map<std::string, EndpointFault> faults;
    for (const auto& [name, fault] : kEndpointFaultNames) {
        faults.emplace(name, fault);
    }
    pipeline_command
        ->add_option("--faulty", pipeline.scenario.fault, "what the last endpoint does: compared with those before it")
        ->transform(CLI::CheckedTransformer(faults));
    pipeline_command->add_flag("--busy-student", pipeline.busy_student, "the student spins in place of sleeping");
    pipeline_command->add_flag("--json-answers", pipeline.json_answers, "the teacher answers JSON, not binary tensors");
    pipeline_command->add_option("--student", pipeline.student,
                                 "a real student: model folder, or config.json as a JSON object");
    pipeline_command->add_option("--threads", pipeline.threads, "threads of the real student")
        ->check(CLI::Range(1, 1024));
    pipeline_command->add_option("--repeat", pipeline.repeat, "pairs of runs with the real student")
        ->check(CLI::Range(1, 1000));
    pipeline.decode_threads = std::max(1U, std::thread::hardware_concurrency() / 2);
    pipeline_command->add_option("--decode-threads", pipeline.decode_threads, "threads that decode answers")
        ->check(CLI::Range(1, 1024));
    pipeline_command->add_option("--trace", pipeline.trace_file, "Chrome trace to write");

    StoreOptions store;
    CLI::App* store_command = app.add_subcommand("store", "the store's formats: size, loss, reading against copying");
    add_store_options(*store_command, store);

    DecodeOptions decode;
    CLI::App* decode_command = app.add_subcommand("decode", "answers into targets, beside a bare walk or copy of them");
    decode_command->add_option("--batch-size", decode.batch_size, "sequences of an answer")->check(CLI::Range(1, 4096));
    decode_command->add_option("--sequence-length", decode.sequence_length, "positions of a sequence")
        ->check(CLI::Range(1, 65536));
    decode_command->add_option("--top-k", decode.top_k, "entries of a position")->check(CLI::Range(1, 4096));
    decode_command->add_option("--vocabulary", decode.vocabulary, "ids, and logits of a position")
        ->check(CLI::Range(4096, 1 << 20));
    decode_command->add_option("--logit-positions", decode.logit_positions, "positions of an answer of full logits")
        ->check(CLI::Range(1, 4096));
    decode_command->add_option("--repeat", decode.repeat, "pairs of measurements")->check(CLI::Range(1, 1000));
    decode_command->add_option("--write-bodies", decode.bodies_folder, "folder to write the answers to")
        ->type_name("DIR");

    TrainOptions train;
    CLI::App* train_command = app.add_subcommand("train", "a student alone, its targets at hand");
    train_command->add_option("--student", train.student, "model folder, or config.json as a JSON object")->required();
    train_command->add_option("--dtype", train.dtype, "of the arithmetic")
        ->check(CLI::IsMember({"auto", "fp32", "bf16"}));
    train_command->add_option("--device", train.device, "as student.device");
    train_command->add_option("--threads", train.threads, "0 = all cores")->check(CLI::Range(0, 1024));
    train_command->add_option("--batch-size", train.batch_size, "sequences of a micro-batch")
        ->check(CLI::Range(1, 4096));
    train_command->add_option("--sequence-length", train.sequence_length, "positions of a sequence")
        ->check(CLI::Range(1, 1 << 20));
    train_command->add_option("--micro-batches", train.micro_batches, "of a step")->check(CLI::Range(1, 65536));
    train_command->add_option("--steps", train.steps, "optimizer steps of a round")->check(CLI::Range(1, 1'000'000));
    train_command->add_option("--warm-up", train.warm_up, "steps before the first round")
        ->check(CLI::Range(0, 1'000'000));
    train_command->add_option("--repeat", train.repeat, "rounds, each beside a measurement of the GEMM rate")
        ->check(CLI::Range(1, 1000));
    train_command->add_option("--top-k", train.top_k, "entries of a teacher's target; 0 = no teacher")
        ->check(CLI::Range(0, 4096));
    train_command
        ->add_option("--replicas", train.replicas, "micro-batches that train at once; 0 = as training.replicas auto")
        ->check(CLI::Range(0U, distilld::kMaxReplicas));
    train_command->add_flag("--by-op", train.by_operation, "time and bytes of each operation of libtorch");

    TokenizeOptions tokenize;
    tokenize.threads = std::max(1U, std::thread::hardware_concurrency());
    CLI::App* tokenize_command = app.add_subcommand("tokenize", "text into ids, on one thread and on several");
    tokenize_command->add_option("FOLDER", tokenize.folder, "folder with a tokenizer.json")->required();
    tokenize_command->add_option("--text", tokenize.text_file, "file of text")->type_name("FILE")->required();
    tokenize_command->add_option("--threads", tokenize.threads, "of the second measurement")
        ->check(CLI::Range(1, 1024));
    tokenize_command->add_option("--repeat", tokenize.repeat, "pairs of measurements")->check(CLI::Range(1, 1000));

    DataOptions data;
    data.threads = std::max(1U, std::thread::hardware_concurrency());
    CLI::App* data_command =
        app.add_subcommand("data", "a dataset at its first start and at the next: time and memory");
    data_command->add_option("FILES", data.files, "JSONL files")->required();
    data_command->add_option("--tokenizer", data.tokenizer, "folder with a tokenizer.json; none: bytes")
        ->type_name("DIR");
    data_command->add_option("--sequence-length", data.sequence_length, "positions of a row")
        ->check(CLI::Range(1, 1 << 20));
    data_command->add_flag("--documents", data.documents, "packing: documents; else joined");
    data_command->add_option("--threads", data.threads, "that parse and tokenize")->check(CLI::Range(1, 1024));
    data_command->add_option("--folder", data.folder, "on whose disk tokens are kept meanwhile")->type_name("DIR");

    LossOptions loss;
    CLI::App* loss_command = app.add_subcommand("loss", "the distillation loss and its gradients, on random inputs");
    loss_command->add_option("--rows", loss.rows, "positions with a target")->check(CLI::Range(1, 1 << 20));
    loss_command->add_option("--hidden", loss.hidden, "of the student")->check(CLI::Range(1, 1 << 16));
    loss_command->add_option("--vocabulary", loss.vocabulary, "tokens")->check(CLI::Range(2, 1 << 20));
    loss_command->add_option("--top-k", loss.top_k, "entries of the teacher; 0 = full logits")
        ->check(CLI::Range(0, 4096));
    loss_command->add_option("--dtype", loss.dtype, "of hidden states and head")
        ->check(CLI::IsMember({"fp32", "bf16"}));
    loss_command->add_option("--beta", loss.beta, "as training.beta")->check(CLI::Range(0.0, 1.0));
    loss_command->add_option("--threads", loss.threads, "0 = all cores")->check(CLI::Range(0, 1024));
    loss_command->add_option("--chunk-rows", loss.chunk_rows, "rows of logits at once; 0 = as training does")
        ->check(CLI::Range(0, 1 << 20));
    loss_command->add_option("--repeat", loss.repeat, "measurements")->check(CLI::Range(1, 1000));

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        if (app.got_subcommand(train_command) || app.got_subcommand(loss_command)) {
            take_environment_of_workers(argv);
        }
        boost::json::object report;
        if (app.got_subcommand(simulate_command)) {
            report = run_simulate(simulate);
        } else if (app.got_subcommand(store_command)) {
            report = run_store(store);
        } else if (app.got_subcommand(decode_command)) {
            report = run_decode(decode);
        } else if (app.got_subcommand(train_command)) {
            report = run_train(train);
        } else if (app.got_subcommand(tokenize_command)) {
            report = run_tokenize(tokenize);
        } else if (app.got_subcommand(data_command)) {
            report = run_data(data);
        } else if (app.got_subcommand(loss_command)) {
            report = run_loss(loss);
        } else if (pipeline.scenario.fault != EndpointFault::none) {
            report = run_pipeline_with_fault(pipeline);
        } else if (pipeline.student.empty()) {
            report = run_pipeline(pipeline);
        } else {
            report = run_pipeline_with_student(pipeline);
        }
        std::cout << distilld::to_text(report) << "\n";
        return 0;
    } catch (const UsageError& error) {
        std::cerr << "distilld-bench: " << error.what() << "\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "distilld-bench: " << error.what() << "\n";
        return 1;
    }
}
