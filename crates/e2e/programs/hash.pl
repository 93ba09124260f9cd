# perl: a hash of lists and strings; reads and updates at random. hash.pl COUNT [STEPS]
use strict;
use warnings;
no warnings 'portable'; # Perl's integers have 64 bits wherever pleat runs.
use integer;

my ($count, $steps) = (@ARGV, @ARGV);
my $state = 9;
sub draw { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return ($state >> 8) % $_[0]; }
my %items;
for my $at (0 .. $count - 1) {
    my $noise = pack 'V120', map { $state = ($state * 1103515245 + 12345) & 0x7fffffff; $state << 1 ^ $at } 1 .. 120;
    $items{"item $at"} = [$at, $noise, "value $at of $count"];
}
my $sum = 0;
for my $step (1 .. $steps) {
    my $item = $items{"item " . draw($count)};
    $item->[0] += 1;
    $sum = ($sum * 31 + $item->[0] + unpack 'V', substr $item->[1], 4 * ($step % 120), 4) & 0xffffffffffff;
}
print scalar(keys %items), " $sum\n";
