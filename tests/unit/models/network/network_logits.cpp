// Runs a model folder on token ids, for comparison with other implementations.
//
//   network_logits FOLDER [--dtype fp32|bf16] [--threads N] [--save FOLDER]
//       reads {"input_ids": [[…], …]} (rows of equal length) from standard input and writes the logits [B, T, V] to
//       standard output as little-endian fp32; with --save also writes the network to a folder
//   network_logits --random CONFIG.json SEED FOLDER
//       writes a folder of random weights

#include <torch/torch.h>

#include <boost/json.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "models/network/llama_network.hpp"

namespace {

using namespace distilld;
using namespace distilld::models;

int make_random(const std::vector<std::string>& arguments) {
    const auto text = read_text_file(arguments.at(1), kConfigSizeLimit).value();
    LlamaNetwork network(parse_llama_config(text, arguments.at(1)).value(), ComputeDtype::fp32, torch::kCPU);
    network.initialize_random(std::stoull(arguments.at(2)));
    network.save(arguments.at(3)).value();
    return 0;
}

int print_logits(const std::vector<std::string>& arguments) {
    auto dtype = ComputeDtype::fp32;
    std::string save_folder;
    for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
        if (arguments[i] == "--dtype") {
            dtype = arguments[i + 1] == "bf16" ? ComputeDtype::bf16 : ComputeDtype::fp32;
        } else if (arguments[i] == "--threads") {
            torch::set_num_threads(std::stoi(arguments[i + 1]));
        } else if (arguments[i] == "--save") {
            save_folder = arguments[i + 1];
        }
    }
    auto network = LlamaNetwork::open(arguments.at(0), dtype, torch::kCPU).value();
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const auto rows =
        boost::json::value_to<std::vector<std::vector<std::int64_t>>>(boost::json::parse(text).at("input_ids"));
    const auto columns = rows.at(0).size();
    std::vector<std::int64_t> flat;
    for (const auto& row : rows) {
        if (row.size() != columns) {
            throw std::invalid_argument("input_ids: rows of equal length are expected");
        }
        flat.insert(flat.end(), row.begin(), row.end());
    }
    const torch::NoGradGuard no_grad;
    const auto input =
        torch::tensor(flat).reshape({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)});
    const auto logits = network.project(network.forward(input)).to(torch::kFloat).contiguous();
    std::fwrite(logits.data_ptr(), 1, logits.nbytes(), stdout);
    if (!save_folder.empty()) {
        network.save(save_folder).value();
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    try {
        return !arguments.empty() && arguments[0] == "--random" ? make_random(arguments) : print_logits(arguments);
    } catch (const std::exception& error) {
        std::cerr << "network_logits: " << error.what() << "\n";
        return 1;
    }
}
