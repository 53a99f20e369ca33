// Runs a model folder on token ids, for comparison with other implementations.
//
//   network_probe logits FOLDER [--dtype D] [--save FOLDER]
//       reads {"input_ids": [[…], …]} (rows of equal length) from standard input and writes the logits [B, T, V] to
//       standard output as little-endian fp32; with --save also writes the network to a folder
//   network_probe gradients FOLDER FILE.safetensors [--dtype D]
//       reads the same and writes the gradients of the mean cross entropy of the next tokens, by the code that trains
//   network_probe random CONFIG.json SEED FOLDER
//       writes a folder of random weights
//
// D: fp32 (the default), bf16 or fp64. FOLDER may be a PEFT folder beside its base. With --ternary all, or a module's
// name, linear modules are made ternary after they are read.

#include <unistd.h>

#include <torch/types.h>
#include <torch/utils.h>

#include <boost/json.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/files/files.hpp"
#include "models/families/adapter_config.hpp"
#include "models/network/causal_lm.hpp"
#include "models/network/ternary_modules.hpp"
#include "models/training/student_network.hpp"
#include "models/training/train_step.hpp"
#include "models/weights/safetensors.hpp"

namespace {

using namespace distilld;
using namespace distilld::models;

using Rows = std::vector<std::vector<std::int64_t>>;

std::string option(const std::vector<std::string>& arguments, const std::string& name) {
    for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
        if (arguments[i] == name) {
            return arguments[i + 1];
        }
    }
    return {};
}

ComputeDtype dtype_of(const std::vector<std::string>& arguments) {
    const std::map<std::string, ComputeDtype> names{{"", ComputeDtype::fp32},
                                                    {"fp32", ComputeDtype::fp32},
                                                    {"bf16", ComputeDtype::bf16},
                                                    {"fp64", ComputeDtype::fp64}};
    return names.at(option(arguments, "--dtype"));
}

Rows read_rows() {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    auto rows = boost::json::value_to<Rows>(boost::json::parse(text).at("input_ids"));
    for (const auto& row : rows) {
        if (row.size() != rows.at(0).size()) {
            throw std::invalid_argument("input_ids: rows of equal length are expected");
        }
    }
    return rows;
}

/// A folder's network; of a PEFT folder with what it adapts.
std::unique_ptr<CausalLm> open_network(const std::vector<std::string>& arguments) {
    const std::string& folder = arguments.at(0);
    if (!is_adapter_folder(folder)) {
        auto network = open_causal_lm(folder, dtype_of(arguments), torch::kCPU).value();
        if (const std::string modules = option(arguments, "--ternary"); !modules.empty()) {
            make_ternary(*network, modules == "all" ? std::vector<std::string>() : std::vector{modules}).value();
        }
        return network;
    }
    const AdapterConfig config = read_adapter_config(folder).value();
    StudentSpec spec;
    spec.model = folder;
    spec.dtype = dtype_of(arguments) == ComputeDtype::bf16 ? Dtype::bf16 : Dtype::fp32;
    LoraSpec& lora = spec.lora.emplace();
    lora.r = static_cast<std::uint32_t>(config.r);
    lora.alpha = config.alpha;
    return make_student_network(spec, TrainingSpec(), torch::kCPU).value();
}

void write_random(const std::vector<std::string>& arguments) {
    const auto text = read_text_file(arguments.at(0), kMaxConfigBytes).value();
    const auto network = make_causal_lm(parse_model_config(text, {arguments.at(0), ""}).value(), ComputeDtype::fp32,
                                        torch::kCPU, std::stoull(arguments.at(1)));
    write_model_folder(arguments.at(2), network->model_export()).value();
}

void print_logits(const std::vector<std::string>& arguments) {
    const auto network = open_network(arguments);
    const Rows rows = read_rows();
    std::vector<torch::Tensor> inputs;
    for (const auto& row : rows) {
        inputs.push_back(torch::tensor(row));
    }
    const torch::NoGradGuard no_grad;
    const auto logits = network->project(network->forward(torch::stack(inputs))).to(torch::kFloat).contiguous();
    std::fwrite(logits.data_ptr(), 1, logits.nbytes(), stdout);
    if (const std::string folder = option(arguments, "--save"); !folder.empty()) {
        write_model_folder(folder, network->model_export()).value();
    }
}

void write_gradients(const std::vector<std::string>& arguments) {
    const auto network = open_network(arguments);
    const Rows rows = read_rows();
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = static_cast<std::uint32_t>(rows.size());
    tokens->columns = static_cast<std::uint32_t>(rows.at(0).size());
    for (const auto& row : rows) {
        for (std::size_t column = 0; column < row.size(); ++column) {
            tokens->input_ids.push_back(static_cast<std::int32_t>(row[column]));
            const bool last = column + 1 == row.size();
            tokens->labels.push_back(last ? kIgnoredLabel : static_cast<std::int32_t>(row[column + 1]));
            tokens->target_tokens += last ? 0 : 1;
        }
    }
    MicroBatch batch;
    batch.step_target_tokens = tokens->target_tokens;
    batch.tokens = std::move(tokens);
    const auto staged = stage_micro_batch(batch, {network->vocabulary_size(), false, 1.0, torch::kCPU});
    accumulate_gradients(*network, *staged, {}, {});
    NamedTensors gradients;
    for (const Parameter& parameter : all_parameters(network->groups())) {
        if (parameter.trainable) {
            gradients.push_back({parameter.name, parameter.master.grad()});
        }
    }
    write_safetensors(arguments.at(1), gradients).value();
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    int code = 0;
    try {
        const std::string command = arguments.at(0);
        arguments.erase(arguments.begin());
        const std::map<std::string, void (*)(const std::vector<std::string>&)> commands{
            {"logits", print_logits}, {"gradients", write_gradients}, {"random", write_random}};
        commands.at(command)(arguments);
    } catch (const std::exception& error) {
        std::cerr << "network_probe: " << error.what() << "\n";
        code = 1;
    }
    std::cout.flush();
    ::_exit(code);  // for the same reason as distilld-worker
}
