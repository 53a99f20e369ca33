#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace distilld::bench {

struct StoreOptions {
    std::uint32_t vocabulary = 151'936;
    std::uint32_t sequence_length = 512;
    std::uint64_t rows = 512;  ///< those that need logits have fewer: 256 MB of them
    std::uint32_t batch_size = 8;
    std::uint32_t repeat = 7;
    std::string format;  ///< only this one; empty = all
    std::string store;   ///< of all logits, in place of the made-up teacher
};

void add_store_options(CLI::App& command, StoreOptions& options);

/// Each format of the store, on a peaked teacher: bytes a token, what storing costs, and reading against copying. Of a
/// store that is there: what each format would take and lose of it. Throws when that cannot be read or is not of
/// logits.
boost::json::object run_store(const StoreOptions& options);

}  // namespace distilld::bench
