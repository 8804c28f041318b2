// SPDX-License-Identifier: Apache-2.0
// Checks the rows with several threads: the time is not shorter than the work, and the divisor
// `ops` is the actual number of operations.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "thread_rows.h"

namespace {

std::atomic<int64_t> allocations{0};

struct Counting : bench::Policy {
    static void *get_any(size_t size) {
        allocations.fetch_add(1, std::memory_order_relaxed);
        return malloc(size);
    }
    template <size_t N> static void *get() { return get_any(N); }
    static void drop(void *p) { free(p); }
};

int failures = 0;

void expect(bool holds, const char *what, const std::string &row, double got, double wanted) {
    if (holds) return;
    fprintf(stderr, "threads_check: %s: %s: %.9g, not %.9g\n", row.c_str(), what, got, wanted);
    failures++;
}

// Work of 2 ms must never be timed as less, however the threads are scheduled.
void check_time() {
    constexpr double WORK_SECONDS = 0.002;
    for (unsigned threads : {1U, 2U, 4U, 8U}) {
        double least = 1e9;
        for (int round = 0; round < 40; round++) {
            double passed = bench::run_threads<Counting>(threads, [](unsigned) {
                for (double start = bench::wall_seconds();
                     bench::wall_seconds() - start < WORK_SECONDS;) {
                }
            });
            least = std::min(least, passed);
        }
        expect(least >= WORK_SECONDS, "seconds of work that takes longer",
               "run_threads/" + std::to_string(threads), least, WORK_SECONDS);
    }
}

// Checks each row when it ends.
class Reporter : public benchmark::BenchmarkReporter {
  public:
    // Row -> allocations per iteration that `ops` does not count.
    std::map<std::string, double> extra;
    int rows = 0;

    bool ReportContext(const Context &) override { return true; }
    void ReportRuns(const std::vector<Run> &runs) override {
        for (const Run &run : runs) look(run);
    }

  private:
    void look(const Run &run) {
        std::string row = run.benchmark_name();
        row = row.substr(0, row.find("/iterations"));
        double iterations = static_cast<double>(run.iterations);
        double ops = run.counters.at("ops");
        double allocs = static_cast<double>(allocations.exchange(0));
        double wanted = iterations * (ops + extra.at(row));
        expect(allocs == wanted, "allocations", row, allocs, wanted);
        double op = run.real_accumulated_time / (iterations * ops);
        double got = run.counters.at("op");
        expect(std::abs(got - op) <= op * 1e-6, "seconds per operation", row, got, op);
        rows++;
    }
};

void add(Reporter &reporter, const std::string &row, void (*run)(bench::State &, unsigned),
         unsigned threads, double extra) {
    std::string name = row + "/" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), [=](bench::State &state) { run(state, threads); })
        ->UseManualTime()
        ->Iterations(2);
    reporter.extra[name] = extra;
}

} // namespace

int main(int argc, char **argv) {
    check_time();
    benchmark::Initialize(&argc, argv);
    Reporter reporter;
    for (unsigned threads : {1U, 2U, 4U, 8U}) {
        add(reporter, "scaling_pair", bench::scaling_pair<Counting>, threads, 0);
        add(reporter, "scaling_replace", bench::scaling_replace<Counting>, threads,
            static_cast<double>(bench::OWN) * threads); // the initial objects
        add(reporter, "scaling_cross", bench::scaling_cross<Counting>, threads, 0);
    }
    auto passed = [](bench::State &state, unsigned) { bench::producer_consumer<Counting>(state); };
    auto crossed = [](bench::State &state, unsigned) { bench::cross_free<Counting>(state); };
    add(reporter, "producer_consumer", passed, 2, 0);
    add(reporter, "cross_free", crossed, 2,
        static_cast<double>(bench::CROSS * bench::CROSS_ROUNDS)); // `ops` counts one thread
    benchmark::RunSpecifiedBenchmarks(&reporter);
    expect(reporter.rows == 14, "rows that ran", "all", reporter.rows, 14);
    return failures == 0 ? 0 : 1;
}
