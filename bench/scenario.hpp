#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "bench/loopback_teacher.hpp"

namespace CLI {
class App;
}

namespace distilld::bench {

/// What the caller of the program got wrong; it ends with 2, as after a wrong option.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// What the commands `pipeline` and `simulate` have in common: a teacher, a student and a pipeline between them.
struct Scenario {
    double teacher_ms = 100;  ///< mean latency T
    double student_ms = 50;   ///< S of one micro-batch
    double sigma = 0;         ///< of the latency's logarithm; 0 = constant
    double failure_rate = 0;  ///< share of requests that fail
    std::uint32_t concurrency = 8;
    bool adaptive = false;     ///< concurrency is a ceiling
    std::uint32_t window = 0;  ///< 0 = as many as it takes
    bool hedge = false;
    std::uint32_t endpoints = 1;
    double slow_factor = 1;                     ///< the last endpoint takes so many times as long as its peers
    EndpointFault fault = EndpointFault::none;  ///< of the last endpoint
    std::uint64_t seed = 1;
    std::string latencies_file;  ///< milliseconds, one a line; replaces mean and sigma

    [[nodiscard]] Nanos teacher() const { return from_milliseconds(teacher_ms); }
    [[nodiscard]] Nanos student() const { return from_milliseconds(student_ms); }
};

void add_scenario_options(CLI::App& app, Scenario& scenario);

/// Latency of the first request of each of `count` micro-batches. Throws std::runtime_error that names the file and
/// line when the file cannot be read, has a line that is no number, or fewer lines than `count`.
std::vector<Nanos> first_latencies(const Scenario& scenario, std::uint64_t count);

Nanos mean_of(const std::vector<Nanos>& latencies);

/// Time a micro-batch takes at the physical bound: max(T/C, S).
Nanos bound_per_batch(Nanos mean_latency, std::uint32_t concurrency, Nanos student);

/// The commands; each prints one JSON object to stdout and returns an exit code.
struct SimulateOptions {
    Scenario scenario;
    std::uint64_t batches = 400;
    double stall_rate = 0;  ///< share of first requests that take stall_factor × the mean
    double stall_factor = 20;
};
boost::json::object run_simulate(const SimulateOptions& options);

struct PipelineOptions {
    Scenario scenario;
    std::uint32_t micro_batches = 8;
    std::uint64_t steps = 20;
    std::uint64_t sequential_steps = 0;  ///< 0 = a quarter of steps
    std::uint32_t batch_size = 4;
    std::uint32_t sequence_length = 128;
    std::uint32_t top_k = 16;
    bool busy_student = false;  ///< the timed student spins in place of sleeping
    bool json_answers = false;  ///< the teacher answers JSON in place of binary tensors
    std::string student;        ///< a real student: model folder, or Llama config as JSON; empty = a timed one
    std::uint32_t threads = 1;  ///< of the real student
    std::uint32_t repeat = 3;   ///< alternating pairs of runs with a real student
    std::uint32_t decode_threads = 1;
    std::string trace_file;
};
/// A timed student: efficiency against the oracle, and the speed-up over the same graph in sequential mode.
boost::json::object run_pipeline(const PipelineOptions& options);
/// A timed student and a last endpoint that is at fault (scenario.fault): what it costs the others, by a run with those
/// alone.
boost::json::object run_pipeline_with_fault(const PipelineOptions& options);
/// A real student: runs with the answers at hand and runs with the live teacher alternate; medians are compared.
boost::json::object run_pipeline_with_student(const PipelineOptions& options);

struct DecodeOptions {
    std::uint32_t batch_size = 8;
    std::uint32_t sequence_length = 512;
    std::uint32_t top_k = 64;
    std::uint32_t vocabulary = 32000;
    std::uint32_t logit_positions = 16;  ///< of an answer of full logits
    std::uint32_t repeat = 9;
    std::string bodies_folder;  ///< where the answers are written to; empty = nowhere
};
/// Decodes answers of several forms, in turn with a bare walk over (JSON) or a copy of (binary) the same bytes.
boost::json::object run_decode(const DecodeOptions& options);

struct TrainOptions {
    std::string student;  ///< model folder, or Llama config as JSON
    std::string dtype = "auto";
    std::string device = "auto";  ///< as student.device
    std::uint32_t threads = 0;    ///< 0 = all cores
    std::uint32_t batch_size = 8;
    std::uint32_t sequence_length = 256;
    std::uint32_t micro_batches = 4;
    std::uint32_t steps = 4;     ///< of a round
    std::uint32_t repeat = 5;    ///< rounds
    std::uint32_t top_k = 64;    ///< of the teacher's targets; 0 = no teacher
    std::uint32_t warm_up = 2;   ///< steps before the first round
    std::uint32_t replicas = 0;  ///< micro-batches that train at once; 0 = as training.replicas "auto"
    bool by_operation = false;   ///< adds a table of libtorch's operations
};
/// Trains a student on targets at hand: rates, shares of the machine's GEMM rate and of the rate of the step's own
/// matrix products, memory.
boost::json::object run_train(const TrainOptions& options);

struct TokenizeOptions {
    std::string folder;         ///< with a tokenizer.json
    std::string text_file;      ///< cut into documents at empty lines
    std::uint32_t threads = 1;  ///< of the second measurement
    std::uint32_t repeat = 5;
};
/// Tokenizes the documents on one thread and on several, in turn; the medians' rates.
boost::json::object run_tokenize(const TokenizeOptions& options);

struct DataOptions {
    std::vector<std::string> files;        ///< JSONL
    std::string tokenizer;                 ///< folder with a tokenizer.json; empty: bytes
    std::uint32_t sequence_length = 1024;  ///< T
    bool documents = false;                ///< kept apart, packed side by side
    std::uint32_t threads = 1;             ///< that parse and tokenize
    std::string folder;                    ///< where tokens are kept meanwhile; empty: with temporary files
};
/// Loads a dataset three times, each in a process of its own: into memory, into files, and from these.
boost::json::object run_data(const DataOptions& options);

struct LossOptions {
    std::uint32_t rows = 4096;  ///< positions with a target
    std::uint32_t hidden = 1024;
    std::uint32_t vocabulary = 32000;
    std::uint32_t top_k = 64;  ///< of the teacher; 0: full logits
    std::string dtype = "fp32";
    double beta = 0;
    std::uint32_t threads = 0;     ///< 0: all cores
    std::uint32_t chunk_rows = 0;  ///< 0: what training takes
    std::uint32_t repeat = 5;
};
/// Computes the loss and its gradients on random inputs; the median's rate. Needs libtorch.
boost::json::object run_loss(const LossOptions& options);

}  // namespace distilld::bench
