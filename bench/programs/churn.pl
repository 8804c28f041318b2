# SPDX-License-Identifier: Apache-2.0
# Hashes, arrays, strings and regular expressions in Perl: churn.pl SIZE (rounds). It has its own
# random numbers, and iterates over hashes in sorted order.
use strict;
use warnings;

my $state = 20261120;

sub random {
    my ($limit) = @_;
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return int($state / 65536) % $limit;
}

my (%kept, @queue);
for my $round (1 .. $ARGV[0]) {
    my @lines = map { join ',', 'key' . random(4000), random(100000), 'x' x random(60) } 1 .. 12000;
    my (%sums, %lists);
    for my $line (@lines) {
        my ($key, $number, $rest) = $line =~ /^(key\d+),(\d+),(x*)$/ or die "no match: $line\n";
        $sums{$key} += $number;
        push @{ $lists{$key} }, { number => $number, rest => $rest . $number };
        $kept{ random(50000) } = [ $key, $number, $rest ];
    }
    my $text = join "\n", @lines;
    my $changed = ($text =~ s/key(\d)(\d+)/$2-$1/g);
    push @queue, { text => $text, lists => \%lists };
    shift @queue if @queue > 3;
    my @top = (sort { $sums{$b} <=> $sums{$a} || $a cmp $b } keys %sums)[0 .. 4];
    print "$round $changed ", length $text, ' ', scalar(keys %kept),
        ' ', join(' ', map {"$_=$sums{$_}"} @top), "\n";
}
my $bytes = 0;
$bytes += length $kept{$_}[2] for sort { $a <=> $b } keys %kept;
print "$bytes\n";
